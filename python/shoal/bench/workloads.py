"""What benchmarks step. Needs Gymnasium and NumPy only: peers import it without Shoal."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["WORKLOADS", "BusyEnv", "ImageEnv", "NoopEnv", "SleepEnv", "Workload"]


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


class SleepEnv(NoopEnv):
    """Waits for something else, one millisecond in the mean, exponentially distributed: a few steps take much longer."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._random.seed(seed)
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self._random.expovariate(1e3))
        return self._obs, 1.0, False, False, {}


def make_cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


@dataclass(frozen=True)
class Workload:
    """What is stepped.

    Attributes:
        title: heads its table.
        make: one environment, in Python; None for those that each contestant brings its own of, in C++.
        native_id: Shoal's name of such.
        subjects: whom the others are compared with: the first of these that is measured.
        waits: steps wait instead of computing: a worker for each environment then keeps all of them going on any number
            of CPUs, and is what contestants that share workers among environments get.
    """

    title: str
    make: Callable[[], gymnasium.Env[Any, Any]] | None
    native_id: str | None = None
    subjects: tuple[str, ...] = ("shoal-process",)
    waits: bool = False


# Every action space is Discrete(2).
WORKLOADS: dict[str, Workload] = {
    "cartpole": Workload("CartPole-v1 in Python", make_cartpole),
    "noop": Workload("an environment that does nothing", NoopEnv),
    "image": Workload("84 x 84 x 4 images", ImageEnv),
    "busy": Workload("1 ms of computing a step", BusyEnv),
    "sleep-exp": Workload(
        "1 ms of waiting a step, in the mean", SleepEnv, subjects=("shoal-async", "shoal-process"), waits=True
    ),
    "native-cartpole": Workload("CartPole-v1 in C++", None, "shoal/CartPole-v1", subjects=("shoal-native",)),
}
