#!/usr/bin/env python3
"""Reads every include of the C++ sources and fails on one that points the wrong way.

The rules: a layer of src/shoal includes itself and the layers before it; LibTorch enters at learn; Python enters at
python/bindings; there, only the files of the modules _learn (learn*), _models (models*) and _torch (torch*) see LibTorch, and
only the first see learn.

    check_includes.py [repository root]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from report import run

LAYERS = ("os", "shm", "sync", "ipc", "process", "env", "vector", "serve", "collect", "learn")
SUFFIXES = {".h", ".cc", ".hpp", ".cpp", ".inc"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
PYTHON = re.compile(r"^(Python\.h$|pybind11/|nanobind/|numpy/|pyconfig\.h$|object\.h$)")


def includes(source: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, bracket and path of each include directive."""
    text = source.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, match[1], match[2]


def layer_of(include: str) -> str | None:
    """The layer of "shoal/<layer>/…"; None for the files beside the layers, such as shoal/version.h."""
    parts = include.split("/")
    return parts[1] if parts[0] == "shoal" and len(parts) > 2 else None


def fault_in_layer(layer: str, bracket: str, include: str) -> str | None:
    if TORCH.match(include) and layer != "learn":
        return f"{layer} uses LibTorch, which enters at learn"
    if PYTHON.match(include):
        return f"{layer} uses Python, which enters at python/bindings"
    if not include.startswith("shoal/"):
        return f'"{include}" is no path from src/ on' if bracket == '"' else None
    other = layer_of(include)
    if other is None:
        return None
    if other not in LAYERS:
        return f"there is no layer {other}"
    if LAYERS.index(other) > LAYERS.index(layer):
        return f"{layer} includes {other}, which comes after it"
    return None


def fault_in_bindings(source: Path, include: str) -> str | None:
    if source.name.startswith("learn"):
        return None
    if TORCH.match(include) and not source.name.startswith(("models", "torch")):
        return "_core uses LibTorch; only the files of _learn (learn*), _models (models*) and _torch (torch*) may"
    other = layer_of(include)
    if other == "learn":
        return "another module than _learn includes learn; only its files (learn*) may"
    if other is not None and other not in LAYERS:
        return f"there is no layer {other}"
    return None


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def check(root: Path) -> tuple[int, list[str]]:
    """How many files were read, and what is wrong with them."""
    faults: list[str] = []
    src, bindings = root / "src" / "shoal", root / "python" / "bindings"
    files = sources(src) + sources(bindings)
    for source in files:
        inside = source.relative_to(src).parts if source.is_relative_to(src) else None
        # What lies beside the layers (version.cc) is seen by all of them, so it sees none.
        layer = None if inside is None or len(inside) == 1 else inside[0]
        if layer is not None and layer not in LAYERS:
            faults.append(f"{source.relative_to(root)}: there is no layer {layer}")
            continue
        for line, bracket, include in includes(source):
            if inside is None:
                fault = fault_in_bindings(source, include)
            elif layer is None:
                fault = "what lies beside the layers includes a layer" if layer_of(include) else None
            else:
                fault = fault_in_layer(layer, bracket, include)
            if fault:
                faults.append(f"{source.relative_to(root)}:{line}: {fault}")
    return len(files), faults


if __name__ == "__main__":
    sys.exit(run(check, sys.argv, "files", "wrong includes"))
