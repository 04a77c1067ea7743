"""Runs Stable-Baselines3's own tests that build vectorised environments with Shoal's classes in the place of its own.

    python tests/conformance/sb3_vec_env.py                        # its tests of the installed version, from its sdist
    python tests/conformance/sb3_vec_env.py --source CHECKOUT      # from a checkout, a .git directory, or a .tar.gz
    python tests/conformance/sb3_vec_env.py -- -k test_vec_envs -x # arguments of pytest

The source distribution has the tests of its version, and pip gets it from wherever it gets packages. Every file is run whole
that names one of the classes, or a function that makes them. None of it is kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import peer_tests

BUILDS = re.compile(r"\b(DummyVecEnv|SubprocVecEnv|make_vec_env|make_atari_env|training_env)\b")

CANNOT_APPLY: dict[str, str] = {}
"""Tests that are not run, each with its reason."""


def fetch(source: str | None, folder: Path) -> None:
    """Puts the peer's tests under `folder`/tests."""
    if source is None:
        wanted = f"stable_baselines3=={version('stable_baselines3')}"
        print(f"fetching the source distribution of {wanted}")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
        only_it = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder), wanted]
        subprocess.run([*pip, *only_it], check=True)
        (archive,) = folder.glob("*.tar.gz")
        source = str(archive)
    peer_tests.unpack_source(source, folder)


def run(folder: Path, pytest_arguments: list[str]) -> int:
    found = [path for path in sorted((folder / "tests").rglob("test_*.py")) if BUILDS.search(path.read_text())]
    if not found:
        print("there are no tests of vectorised environments in this copy")
        return 1
    files = [str(path.relative_to(folder)) for path in found]
    return peer_tests.run(folder, "sb3_in_place", files, CANNOT_APPLY, pytest_arguments)


if __name__ == "__main__":
    sys.exit(peer_tests.main(__doc__, "stable-baselines3", fetch, run))
