"""Models and environments of the tests of the model service; importable by workers."""

from __future__ import annotations

import os
import signal
from typing import Any

import gymnasium
import numpy as np

import shoal


def double(x: np.ndarray) -> np.ndarray:
    return x * 2


def make_double() -> Any:
    return double


def pid(x: np.ndarray) -> np.ndarray:
    return np.full(len(x), os.getpid())


def picky(x: np.ndarray) -> np.ndarray:
    """Fails on a negative row, and with it on every batch that has one."""
    if (x < 0).any():
        raise ValueError("a negative row")
    return x + 1


def batch_size(x: np.ndarray) -> np.ndarray:
    return np.full(len(x), len(x))


def deadly(x: np.ndarray) -> np.ndarray:
    if (x == 13).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def linear() -> Any:
    import torch

    layer = torch.nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.zero_()
    return layer


MODELS = {"double": double, "pid": pid, "picky": picky, "batch_size": batch_size}


class AskingEnv(gymnasium.Env):
    """Observes what the model makes of its counter, asked for in __init__, reset and step."""

    observation_space = gymnasium.spaces.Box(-1e9, 1e9, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, name: str = "double") -> None:
        self.model = shoal.worker().model(name)
        assert self.model(np.zeros(2)).shape == (2,)
        self.count = 0.0

    def worker_pid(self) -> int:
        return os.getpid()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0.0
        return self.model(np.full(2, self.count)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        reply = self.model.submit(np.full(2, self.count))
        (obs,) = self.model.gather([reply])
        return obs, float(shoal.worker().model("pid")(obs)), False, False, {}


class TotalEnv(AskingEnv):
    """Observes the sum of its own number since its reset, which a recurrent model keeps."""

    def __init__(self) -> None:
        self.total = shoal.worker().model("total")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._next(True), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._next(False), 0.0, False, False, {}

    def _next(self, reset: bool) -> np.ndarray:
        number = shoal.worker().env_index
        assert number is not None
        return self.total(np.full(2, number + 1.0), reset=reset)
