"""Which observations of environments with DI-engine's interface travel as arrays in rows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from shoal.compat import observation_rows

__all__ = ["as_row", "row_space"]

_KINDS = ("Box", "Discrete", "Dict")


def row_space(space: Any) -> gymnasium.Space[Any] | None:
    """Gymnasium's space of the arrays that observations of `space` are: of a Box or Discrete, or of a Dict of these, of gym or
    of Gymnasium. None for all others."""
    return observation_rows.row_space(space, _KINDS)


def as_row(observation: Any, space: gymnasium.Space[Any], cast: bool) -> Any:
    """What stands for `observation` in the rows of `space`, a space as row_space() makes them; None where that would not be the
    same.

    Args:
        cast: dtypes within a kind, and shapes by broadcasting, may change to the space's (`np.copyto`), as in DI-engine's shared
            memory.
    """
    return observation_rows.row_of(observation, space, _cast_leaf if cast else _leaf)


def _leaf(observation: Any, space: gymnasium.Space[Any]) -> np.ndarray | None:
    if type(observation) is np.ndarray and observation.dtype == space.dtype and observation.shape == space.shape:
        return observation
    return None


def _cast_leaf(observation: Any, space: gymnasium.Space[Any]) -> np.ndarray | None:
    same = _leaf(observation, space)
    if same is not None or not isinstance(observation, np.ndarray) or space.shape is None:
        return same
    try:
        row = np.empty(space.shape, space.dtype)
        np.copyto(row, observation)
    except (TypeError, ValueError):
        return None
    return row
