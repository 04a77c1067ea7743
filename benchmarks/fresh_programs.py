"""A measurement in a fresh program each, round after round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["alternate"]

ROOT = Path(__file__).resolve().parent.parent


def alternate(
    script: str, kinds: Sequence[str], rounds: int, arguments: Sequence[str] = (), *, timeout: float = 900
) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Runs `script --measure KIND ARGUMENTS…`, whose last line is one of JSON, for each kind in each round, every other
    round from the last kind to the first; gives round, kind and what the line says as soon as it is there."""
    packages = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / "python")]))
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            done = subprocess.run(
                [sys.executable, script, "--measure", kind, *arguments],
                stdout=subprocess.PIPE,
                text=True,
                timeout=timeout,
                env={**os.environ, "PYTHONPATH": packages},
            )
            if done.returncode != 0:
                raise SystemExit(f"{kind} failed with status {done.returncode}")
            yield number, kind, json.loads(done.stdout.splitlines()[-1])
