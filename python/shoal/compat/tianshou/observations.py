"""Which observations travel in rows of shared memory, and are the same at the other end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from shoal.compat import observation_rows

__all__ = ["row_of", "row_space"]

_KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def row_space(space: Any) -> gymnasium.Space[Any] | None:
    """The space of all arrays with the dtypes and shapes of `space`: of one of Gymnasium's that has such arrays, or of a Dict or
    Tuple of these. None for all others."""
    return observation_rows.row_space(space, _KINDS) if isinstance(space, gymnasium.Space) else None


def row_of(observation: Any, space: gymnasium.Space[Any], cast: bool) -> Any:
    """The row of an observation in a row_space(); None where what is read from it would be another.

    Args:
        cast: the dtypes become the space's, as in the peer's shared memory.
    """
    return observation_rows.row_of(observation, space, _cast_leaf if cast else _leaf)


def _leaf(observation: Any, space: gymnasium.Space[Any]) -> Any:
    if isinstance(observation, np.ndarray | np.generic):
        if observation.dtype == space.dtype and observation.shape == space.shape:
            return observation
    return None


def _cast_leaf(observation: Any, space: gymnasium.Space[Any]) -> Any:
    same = _leaf(observation, space)
    if same is not None:
        return same
    try:
        array = np.asarray(observation, dtype=space.dtype)
        row = np.empty(space.shape or (), space.dtype)
        np.copyto(row, array)
    except (TypeError, ValueError):
        return None
    return row
