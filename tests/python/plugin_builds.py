"""Plug-ins that tests build against an install tree: see the fixture `build`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["BUILD", "ROOT", "builder", "needs_a_build", "python", "run"]

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"

needs_a_build = [
    pytest.mark.skipif(not (BUILD / "cmake_install.cmake").exists(), reason="there is no build in build/release"),
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
]


def run(*command: object, **kwargs: Any) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=100, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def builder(folder: Path) -> Callable[..., Path]:
    """Installs Shoal's headers in `folder`, and returns what builds a source folder with them and returns where."""
    prefix = folder / "prefix"
    run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "development")

    def build_in(source: Path, *definitions: str) -> Path:
        there = folder / f"{source.name}-{len(list(folder.iterdir()))}"
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        run("cmake", "-S", source, "-B", there, f"-DCMAKE_PREFIX_PATH={prefix}", *launcher, *definitions)
        run("cmake", "--build", there)
        return there

    return build_in


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a process of its own: a plug-in stays loaded."""
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
