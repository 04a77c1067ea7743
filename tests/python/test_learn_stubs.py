"""The checked-in stub of shoal._learn says what the extension module has. `python
tests/python/test_learn_stubs.py` writes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_stubs import ruff, with_parameters

PACKAGE = Path(__file__).parents[2] / "python" / "shoal"
MODULES = ["_learn"]


def generate(module: str, file: Path) -> str:
    """Makes the stub anew, formatted as the sources are."""
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", f"shoal.{module}", "-o", str(file)]
    subprocess.run(command, check=True, timeout=100)
    file.write_text(with_parameters(file.read_text()))
    config = f"--config={PACKAGE.parents[1] / 'pyproject.toml'}"
    subprocess.run([ruff(), "check", "-q", "--fix", "--exit-zero", config, str(file)], check=True, timeout=60)
    subprocess.run([ruff(), "format", "-q", config, str(file)], check=True, timeout=60)
    return file.read_text()


@pytest.mark.parametrize("module", MODULES)
def test_the_stub_is_that_of_the_built_module(module: str, tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    if shutil.which(ruff()) is None:
        pytest.skip("ruff is not installed")
    stub = PACKAGE / f"{module}.pyi"
    assert generate(module, tmp_path / stub.name) == stub.read_text(), f"write {stub.name} anew: python {__file__}"


if __name__ == "__main__":
    for name in MODULES:
        generate(name, PACKAGE / f"{name}.pyi")
