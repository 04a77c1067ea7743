"""A fixture of modules that exist for one test."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal

__all__ = ["written_modules"]


def written_modules(**sources: str) -> Any:
    """A fixture of modules with these names and sources, imported in this order, in every process anew for each test."""

    @pytest.fixture
    def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[types.ModuleType, ...]]:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        yield tuple(importlib.import_module(name) for name in sources)
        for name in sources:
            sys.modules.pop(name, None)
        shoal.process.close_launchers()  # they have imported these

    return modules
