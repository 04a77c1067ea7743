"""One environment in its worker, as moolib's EnvPool reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["SingleEnv"]

_KINDS = "biuf"
"""Of dtypes: those of tensors."""


class SingleEnv(gymnasium.Env[Any, Any]):
    """An environment with gym's or Gymnasium's `reset` and `step`. Its spaces are not asked for, and it need not have any:
    observations are of the dtypes and shapes of its first one."""

    def __init__(self, create_env: Callable[[], Any]) -> None:
        self.env = create_env()
        self._first: dict[str, np.ndarray] | None = self._begin()
        parts = [(key, _space_of(key, part)) for key, part in self._first.items()]
        self.observation_space: spaces.Space[Any] = spaces.Dict(parts)
        whole = np.iinfo(np.int64)
        self.action_space = spaces.Box(whole.min, whole.max, (), np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        begun, self._first = self._first, None
        return self._begin() if begun is None else begun, {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        observation, reward, *ended = self.env.step(int(action))
        truncated = bool(ended[1]) if len(ended) == 3 else False  # Gymnasium's: terminated, truncated, info
        return _parts(observation), float(reward), bool(ended[0]), truncated, {}

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def _begin(self) -> dict[str, np.ndarray]:
        begun = self.env.reset()
        if isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], dict):
            begun = begun[0]  # Gymnasium's: observation and info
        return _parts(begun)


def _parts(observation: Any) -> dict[str, np.ndarray]:
    if not isinstance(observation, dict):
        return {"state": np.asarray(observation)}
    return {key: np.asarray(part) for key, part in observation.items()}


def _space_of(key: Any, part: np.ndarray) -> spaces.Box:
    if not isinstance(key, str):
        raise TypeError(f"EnvPool: keys of observations are strings, got {key!r}")
    if key in ("done", "reward"):
        raise ValueError(f"EnvPool: the observation's {key!r} would hide the step's own: call it something else")
    if part.dtype.kind not in _KINDS:
        raise TypeError(f"EnvPool: observations are arrays of numbers, {key!r} is an array of {part.dtype}")
    if part.dtype.kind == "b":
        return spaces.Box(0, 1, part.shape, np.bool_)  # type: ignore[arg-type]  # it takes bool, too
    low, high = (-np.inf, np.inf) if part.dtype.kind == "f" else (np.iinfo(part.dtype).min, np.iinfo(part.dtype).max)
    return spaces.Box(low, high, part.shape, part.dtype.type)
