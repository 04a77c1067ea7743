"""Runs tianshou's own tests of vectorised environments with Shoal's classes in the place of its own.

    python tests/conformance/tianshou_vector.py                         # its tests of the installed version, from GitHub
    python tests/conformance/tianshou_vector.py --source CHECKOUT       # from a checkout, a .git directory, or a .tar.gz
    python tests/conformance/tianshou_vector.py -- -k async -x          # arguments of pytest

Its source distribution has no tests, so they come from the repository at the tag of the version that is installed here;
--source names another copy. Of `test/base` every file is run whole that names one of the classes; other folders train
agents for minutes each. None of it is kept.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import peer_tests

ARCHIVE = "https://github.com/thu-ml/tianshou/archive/refs/tags/v{}.tar.gz"

BUILDS = re.compile(r"\b(DummyVectorEnv|ShmemVectorEnv|SubprocVectorEnv)\b")

CANNOT_APPLY: dict[str, str] = {}
"""Tests that are not run, each with its reason."""


def fetch(source: str | None, folder: Path) -> None:
    """Puts the peer's tests under `folder`/test."""
    peer_tests.unpack_archive(ARCHIVE.format(version("tianshou")), source, folder, "test")


def run(folder: Path, pytest_arguments: list[str]) -> int:
    found = [path for path in sorted((folder / "test/base").glob("test_*.py")) if BUILDS.search(path.read_text())]
    if not found:
        print("there are no tests of vectorised environments in this copy")
        return 1
    files = [str(path.relative_to(folder)) for path in found]
    return peer_tests.run(folder, "tianshou_in_place", files, CANNOT_APPLY, pytest_arguments)


if __name__ == "__main__":
    sys.exit(peer_tests.main(__doc__, "tianshou", fetch, run))
