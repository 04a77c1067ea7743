"""Runs Gymnasium's own tests of vector environments with Shoal's classes in the place of its own.

    python tests/conformance/gymnasium_vector.py                        # its tests of the installed version, from GitHub
    python tests/conformance/gymnasium_vector.py --source CHECKOUT      # from a checkout, a .git directory, or a .tar.gz
    python tests/conformance/gymnasium_vector.py -- -k autoreset -x     # arguments of pytest

The source distribution on PyPI has the package without these tests, so they come from the repository at the tag of the
version that is installed here; --source names another copy. None of it is kept.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from importlib.metadata import version
from pathlib import Path

import account

HERE = Path(__file__).resolve().parent
ARCHIVE = "https://github.com/Farama-Foundation/Gymnasium/archive/refs/tags/v{}.tar.gz"

FOLDERS = ("tests/vector",)

CANNOT_APPLY: dict[str, str] = {}
"""Tests that are not run, each with its reason."""


def fetch(source: str | None, folder: Path) -> None:
    """Puts Gymnasium's tests under `folder`/tests."""
    if source is None:
        url = ARCHIVE.format(version("gymnasium"))
        print(f"fetching {url}")
        with urllib.request.urlopen(url, timeout=60) as answer:
            unpack(answer.read(), folder)
    elif source.endswith((".tar.gz", ".tgz")):
        unpack(Path(source).read_bytes(), folder)
    else:
        command = ["git", "-C", source, "archive", "HEAD", "tests"]
        unpack(subprocess.run(command, check=True, capture_output=True).stdout, folder)


def unpack(archive: bytes, folder: Path) -> None:
    """Unpacks the folder `tests`, whatever folder it is in."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files.getmembers():
            parts = Path(member.name).parts
            if "tests" not in parts or not (member.isfile() or member.isdir()):
                continue
            member.name = str(Path(*parts[parts.index("tests") :]))
            files.extract(member, folder, filter="data")


def run(folder: Path, pytest_arguments: list[str]) -> int:
    paths = [str(HERE), str(HERE.parents[1] / "python"), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "in_place",
        "-p",
        "account",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
    ]
    command += ["--tb=short", "-q", *[f"--deselect={name}" for name in CANNOT_APPLY], *pytest_arguments]
    files = [str(path.relative_to(folder)) for name in FOLDERS for path in sorted((folder / name).rglob("test_*.py"))]
    if not files:
        print(f"there are no tests in {', '.join(FOLDERS)} of this copy")
        return 1
    told = folder / "account.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), account.VARIABLE: str(told)}
    done = subprocess.run([*command, *FOLDERS], cwd=folder, env=environment)
    return account.verdict(told, done.returncode, files, bool(pytest_arguments))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help="a checkout of Gymnasium, its .git directory, or a .tar.gz of it")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gymnasium-tests-") as folder:
        fetch(arguments.source, Path(folder))
        return run(Path(folder), arguments.pytest)


if __name__ == "__main__":
    sys.exit(main())
