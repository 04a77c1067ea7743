"""The checked-in stub of shoal._learn says what the extension module has. `python tests/python/test_learn_stubs.py` writes
it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_stubs import ruff

STUB = Path(__file__).parents[2] / "python" / "shoal" / "_learn.pyi"


def generate(file: Path) -> str:
    """Makes the stub anew, formatted as the sources are."""
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "shoal._learn", "-o", str(file)]
    subprocess.run(command, check=True, timeout=100)
    config = f"--config={STUB.parents[2] / 'pyproject.toml'}"
    subprocess.run([ruff(), "check", "-q", "--fix", "--exit-zero", config, str(file)], check=True, timeout=60)
    subprocess.run([ruff(), "format", "-q", config, str(file)], check=True, timeout=60)
    return file.read_text()


def test_the_stub_is_that_of_the_built_module(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    if shutil.which(ruff()) is None:
        pytest.skip("ruff is not installed")
    assert generate(tmp_path / STUB.name) == STUB.read_text(), f"write {STUB.name} anew: python {__file__}"


if __name__ == "__main__":
    generate(STUB)
