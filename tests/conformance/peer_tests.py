"""Other projects' test files, unpacked into a folder of their own and run by pytest with a plug-in of ours."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import account

HERE = Path(__file__).resolve().parent


def main(
    about: str | None,
    peer: str,
    fetch: Callable[[str | None, Path], None],
    run_in: Callable[[Path, list[str]], int],
) -> int:
    """The command of a runner: fetches `peer`'s tests, from `--source` where it is given, and runs them; the exit code."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", help=f"a checkout of {peer}, its .git directory, or a .tar.gz of it")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peer-tests-") as folder:
        fetch(arguments.source, Path(folder))
        return run_in(Path(folder), arguments.pytest)


def unpack_source(source: str, folder: Path, tests: str = "tests") -> None:
    """Puts the folder `tests` of a checkout, a .git directory or a .tar.gz under `folder`."""
    if source.endswith((".tar.gz", ".tgz")):
        unpack(Path(source).read_bytes(), folder, tests)
    else:
        command = ["git", "-C", source, "archive", "HEAD", tests]
        unpack(subprocess.run(command, check=True, capture_output=True).stdout, folder, tests)


def unpack_archive(url: str, source: str | None, folder: Path, tests: str = "tests") -> None:
    """The same of `source`, or where there is none of what lies at `url`."""
    if source is not None:
        unpack_source(source, folder, tests)
        return
    print(f"fetching {url}")
    with urllib.request.urlopen(url, timeout=60) as answer:
        unpack(answer.read(), folder, tests)


def unpack(archive: bytes, folder: Path, tests: str = "tests") -> None:
    """Unpacks the folder of the name `tests`, whatever folder it is in."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files.getmembers():
            parts = Path(member.name).parts
            if tests not in parts or not (member.isfile() or member.isdir()):
                continue
            member.name = str(Path(*parts[parts.index(tests) :]))
            # Before Python 3.11.4 there is no filter; whoever names the archive runs what is in it, anyway.
            files.extract(member, folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def run(
    folder: Path,
    plugin: str,
    files: Sequence[str],
    cannot_apply: Iterable[str],
    pytest_arguments: list[str],
    scratch: Path | None = None,
) -> int:
    """Runs `files`, relative to `folder`; the exit code.

    Args:
        plugin: the module beside this one that puts our classes in the place of theirs.
        cannot_apply: tests that are not run.
        scratch: where the tests run, and may leave files; `folder` by default.
    """
    scratch = scratch or folder
    paths = [str(HERE), str(HERE.parents[1] / "python"), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    plugins = [word for name in (plugin, "building", "account", "no:cacheprovider") for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), "--tb=short", "-q"]
    command += [
        *[f"--deselect={name}" for name in cannot_apply],
        *pytest_arguments,
        *[str(folder / name) for name in files],
    ]
    told = scratch / "account.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), account.VARIABLE: str(told)}
    done = subprocess.run(command, cwd=scratch, env=environment)
    return account.verdict(told, done.returncode, files, bool(pytest_arguments))
