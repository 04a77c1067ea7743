"""Runs Gymnasium's own tests of vector environments with Shoal's classes in the place of its own.

    python tests/conformance/gymnasium_vector.py                        # its tests of the installed version, from GitHub
    python tests/conformance/gymnasium_vector.py --source CHECKOUT      # from a checkout, a .git directory, or a .tar.gz
    python tests/conformance/gymnasium_vector.py -- -k autoreset -x     # arguments of pytest

The source distribution on PyPI has the package without these tests, so they come from the repository at the tag of the
version that is installed here; --source names another copy. None of it is kept.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import peer_tests

ARCHIVE = "https://github.com/Farama-Foundation/Gymnasium/archive/refs/tags/v{}.tar.gz"

FOLDERS = ("tests/vector",)

CANNOT_APPLY: dict[str, str] = {}
"""Tests that are not run, each with its reason."""


def fetch(source: str | None, folder: Path) -> None:
    """Puts Gymnasium's tests under `folder`/tests."""
    peer_tests.unpack_archive(ARCHIVE.format(version("gymnasium")), source, folder)


def run(folder: Path, pytest_arguments: list[str]) -> int:
    files = [str(path.relative_to(folder)) for name in FOLDERS for path in sorted((folder / name).rglob("test_*.py"))]
    if not files:
        print(f"there are no tests in {', '.join(FOLDERS)} of this copy")
        return 1
    return peer_tests.run(folder, "in_place", files, CANNOT_APPLY, pytest_arguments)


if __name__ == "__main__":
    sys.exit(peer_tests.main(__doc__, "Gymnasium", fetch, run))
