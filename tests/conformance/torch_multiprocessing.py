"""Runs PyTorch's own tests of torch.multiprocessing on shoal.multiprocessing.

    python tests/conformance/torch_multiprocessing.py                                   # of the installed version, from GitHub
    python tests/conformance/torch_multiprocessing.py --source test_multiprocessing.py --source test_multiprocessing_spawn.py
    python tests/conformance/torch_multiprocessing.py -- -k sharing                     # arguments of pytest

The wheel has what they stand on (torch.testing; it needs `pip install expecttest`), but not the tests, so they come from the
repository at the tag of the version that is installed here; --source names other copies. In them, and nowhere else,
`torch.multiprocessing` becomes `shoal.multiprocessing`. None of it is kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.request
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import account

HERE = Path(__file__).resolve().parent
ADDRESS = "https://raw.githubusercontent.com/pytorch/pytorch/v{}/test/{}"
FILES = ("test_multiprocessing.py", "test_multiprocessing_spawn.py")

CANNOT_APPLY = {
    "TestMultiprocessing.test_fs": "asserts that a named file appears in /dev/shm; nothing of Shoal's has a name there",
}
"""Tests that are not run, each with its reason."""

CONFTEST = """
def pytest_collection_modifyitems(config, items):
    out = [item for item in items if f"{item.parent.name}.{item.name}" in %r]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
"""


def texts(sources: list[Path]) -> dict[str, str]:
    """The tests by file name."""
    if sources:
        return {path.name: path.read_text() for path in sources}
    found = {}
    for name in FILES:
        url = ADDRESS.format(version("torch").partition("+")[0], name)
        print(f"fetching {url}")
        with urllib.request.urlopen(url, timeout=60) as answer:
            found[name] = answer.read().decode()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, action="append", default=[], help="a test file; may be repeated")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    if find_spec("expecttest") is None:
        print("skipped: torch.testing needs expecttest (pip install expecttest)")
        return 0
    with tempfile.TemporaryDirectory(prefix="torch-tests-") as folder:
        found = texts(arguments.source)
        for name, text in found.items():
            text = text.replace("import torch.multiprocessing as mp", "import shoal.multiprocessing as mp")
            Path(folder, name).write_text(text)
        Path(folder, "conftest.py").write_text(CONFTEST % set(CANNOT_APPLY))
        paths = [folder, str(HERE), str(HERE.parents[1] / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "account",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            "--tb=short",
        ]
        command += ["-q", "--timeout=300", *arguments.pytest, "."]
        told = Path(folder, "account.json")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), account.VARIABLE: str(told)}
        done = subprocess.run(command, cwd=folder, env=environment)
        return account.verdict(told, done.returncode, sorted(found), bool(arguments.pytest))


if __name__ == "__main__":
    sys.exit(main())
