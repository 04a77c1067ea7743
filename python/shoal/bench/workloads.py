"""The environments that benchmarks step. Needs Gymnasium and NumPy only: peers import it without Shoal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["NATIVE_IDS", "WORKLOADS", "BusyEnv", "ImageEnv", "NoopEnv"]


class NoopEnv(gymnasium.Env[np.ndarray, int]):
    """Does nothing: what is left is the cost of getting there and back."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._obs, 1.0, False, False, {}


class ImageEnv(NoopEnv):
    """Four stacked Atari-sized frames, 28 KB an observation."""

    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)

    def __init__(self) -> None:
        self._obs = np.zeros((84, 84, 4), np.uint8)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._obs[0, 0, 0] += 1
        return self._obs, 1.0, False, False, {}


class BusyEnv(NoopEnv):
    """Computes for one millisecond, as a small simulator does."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.perf_counter() + 1e-3
        while time.perf_counter() < end:
            pass
        return self._obs, 1.0, False, False, {}


def make_cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


# Every action space is Discrete(2).
WORKLOADS: dict[str, Callable[[], gymnasium.Env[Any, Any]]] = {
    "cartpole": make_cartpole,
    "noop": NoopEnv,
    "image": ImageEnv,
    "busy": BusyEnv,
}

NATIVE_IDS = {"cartpole": "shoal/CartPole-v1"}
