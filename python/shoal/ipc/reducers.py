"""What crosses to another process by handle: the types, and what takes the place of their objects in a pickle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal._core import ipc

__all__ = ["Reducer", "add_reducer", "by_type"]

Reducer = Callable[[Any, "list[ipc.Block]"], Any]

by_type: dict[type, Reducer] = {}
"""Of exactly these types; for an object that a reducer does not want it returns NotImplemented."""


def add_reducer(kind: type, reducer: Reducer) -> None:
    """Pickles objects whose type is exactly `kind` by `reducer(obj, blocks)`, which returns what `__reduce__` may
    return and appends the blocks that it names."""
    by_type[kind] = reducer
