"""Wrappers as Gymnasium 0.29 has them; those that are the same are the installed Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium import wrappers

from shoal.names import names_of

__all__ = ["FrameStack", "GrayScaleObservation", "TransformObservation"]


class TransformObservation(wrappers.TransformObservation[Any, Any, Any]):
    """Changes observations by a function; the observation space stays as it is."""

    def __init__(self, env: gymnasium.Env[Any, Any], f: Callable[[Any], Any]) -> None:
        super().__init__(env, f, env.observation_space)


class FrameStack(wrappers.FrameStackObservation[Any, Any, Any]):
    """Observations are the last `num_stack`, as one array; a reset fills all of them with its own."""

    def __init__(self, env: gymnasium.Env[Any, Any], num_stack: int) -> None:
        super().__init__(env, num_stack)


class GrayScaleObservation(wrappers.GrayscaleObservation[Any, Any, Any]):
    """Pictures in grey, with a last axis of 1 where `keep_dim` says so."""

    def __init__(self, env: gymnasium.Env[Any, Any], keep_dim: bool = False) -> None:
        super().__init__(env, keep_dim)


__getattr__ = names_of("shoal.compat.cleanrl.wrappers", {}, ["gymnasium.wrappers"], "")
