"""How a check of this folder says what it found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def run(check: Callable[[Path], tuple[int, list[str]]], argv: list[str], read: str, faulty: str) -> int:
    """The faults that `check` finds in the repository that `argv` names, by default this one, and a closing line.

    Args:
        check: of a repository's root, how many were read, and a line for each fault.
        argv: as sys.argv.
        read: what was read, in the plural.
        faulty: what the faults are, in the plural.

    Returns:
        The exit status: 0, 1 with faults, 2 where nothing was read.
    """
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).resolve().parents[2]
    count, faults = check(root)
    if count == 0:
        print(f"no {read} under {root}", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{count} {read} read, {len(faults)} {faulty}")
    return 1 if faults else 0
