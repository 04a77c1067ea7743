"""The checked-in stubs of shoal._core say what the extension module has. `python tests/python/test_stubs.py` writes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).parents[2] / "python" / "shoal" / "_core"


def generate(folder: Path) -> Path:
    """Makes the stubs anew in `folder`, formatted as the sources are."""
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "shoal._core", "-r", "-O", str(folder)]
    subprocess.run(command, check=True, timeout=100)
    stubs = folder / "_core"
    config = f"--config={STUBS.parents[2] / 'pyproject.toml'}"
    subprocess.run([ruff(), "check", "-q", "--fix", "--exit-zero", config, str(stubs)], check=True, timeout=60)
    subprocess.run([ruff(), "format", "-q", config, str(stubs)], check=True, timeout=60)
    return stubs


def ruff() -> str:
    return shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff"


def test_the_stubs_are_those_of_the_built_module(tmp_path: Path) -> None:
    pytest.importorskip("nanobind")
    if shutil.which(ruff()) is None:
        pytest.skip("ruff is not installed")
    generated = generate(tmp_path)
    names = sorted(path.name for path in generated.iterdir())
    assert sorted(path.name for path in STUBS.glob("*.pyi")) == names
    for name in names:
        assert (STUBS / name).read_text() == (generated / name).read_text(), f"write {name} anew: python {__file__}"


if __name__ == "__main__":
    generate(STUBS.parent)
