"""Which observations travel as arrays in rows, and are the same at the other end: what adapters of one environment after the other
share. Spaces are gym's or Gymnasium's, whichever an environment has."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["NOTHING", "NO_ROWS", "nothing_of", "row_of", "row_space"]

NO_ROWS = spaces.Box(0, 255, (1,), np.uint8)
"""The space of the rows where observations travel as objects."""

NOTHING = np.zeros(1, np.uint8)

_DTYPES = frozenset(np.dtype(name) for name in "i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split())


def row_space(space: Any, kinds: Collection[str]) -> gymnasium.Space[Any] | None:
    """Gymnasium's space of all arrays with the dtypes and shapes of `space`. None where it is none of such arrays, or of a kind
    that is not among `kinds`, which are classes of spaces by name."""
    kind = _kind(space)
    if kind not in kinds:
        return None
    if kind == "Dict":
        parts = {key: row_space(part, kinds) for key, part in space.spaces.items()}
        if not parts or None in parts.values() or not all(isinstance(key, str) for key in parts):
            return None
        return spaces.Dict(list(parts.items()))  # type: ignore[arg-type]  # none is None
    if kind == "Tuple":
        members = [row_space(part, kinds) for part in space.spaces]
        return None if not members or None in members else spaces.Tuple(members)  # type: ignore[arg-type]  # likewise
    dtype, shape = np.dtype(space.dtype), space.shape
    if dtype not in _DTYPES or shape is None or 0 in shape:
        return None
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return spaces.Box(low, high, tuple(shape), dtype.type)


def nothing_of(space: gymnasium.Space[Any]) -> Any:
    """What fills a row of a row_space() while the observation travels as an object."""
    if isinstance(space, spaces.Dict):
        return {key: nothing_of(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nothing_of(part) for part in space.spaces)
    assert space.shape is not None
    return np.zeros(space.shape, space.dtype)


def row_of(observation: Any, space: gymnasium.Space[Any], leaf: Callable[[Any, gymnasium.Space[Any]], Any]) -> Any:
    """The row of an observation in a row_space(); None where what is read from it would be another.

    Args:
        leaf: the same of a Box, whose dtype and shape a row has.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, dict) or list(observation) != list(space.spaces):
            return None
        parts = {key: row_of(observation[key], part, leaf) for key, part in space.spaces.items()}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(space, spaces.Tuple):
        if type(observation) is not tuple or len(observation) != len(space.spaces):
            return None
        members = tuple(row_of(own, part, leaf) for own, part in zip(observation, space.spaces, strict=True))
        return None if any(part is None for part in members) else members
    return leaf(observation, space)


def _kind(space: Any) -> str:
    """'Box', 'Dict' …, also of a subclass."""
    for base in type(space).__mro__:
        if base.__module__.partition(".")[0] in ("gym", "gymnasium"):
            return base.__name__
    return ""
