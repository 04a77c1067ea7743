"""Policies of the tests of collectors, and the batches that come of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal

CARTPOLE = "shoal/CartPole-v1"


def zeros(obs: np.ndarray) -> np.ndarray:
    return np.zeros(len(obs), np.int64)


def coin(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draws from NumPy's global generator."""
    return np.random.randint(0, 2, len(obs)), np.full(len(obs), np.log(0.5))


def batches(*args: Any, count: int | None = None, **kwargs: Any) -> list[dict[str, Any]]:
    with shoal.Collector(*args, **kwargs) as collector:
        return [batch for _, batch in zip(range(count or 10**9), collector, strict=False)]


def torch_policy(seed: int = 0) -> Any:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Linear(4, 3)

        def forward(self, obs: Any) -> Any:
            out = self.body(obs)
            chosen = torch.distributions.Categorical(logits=out[:, :2])
            action = chosen.sample()
            return action, chosen.log_prob(action), out[:, 2]

    torch.manual_seed(seed)
    return Net()


class Linear:
    """A model of a service, with weights."""

    def __init__(self) -> None:
        self.weight = np.zeros(4)

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (obs @ self.weight > 0).astype(np.int64), np.full(len(obs), -0.5)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight = np.asarray(state["weight"])


class Remembers:
    """Its action is how long the episode has lasted, by its own count."""

    def initial_state(self, num_envs: int) -> np.ndarray:
        return np.zeros(num_envs, np.int64)

    def __call__(self, obs: Any, state: np.ndarray, is_first: np.ndarray) -> dict[str, Any]:
        state = np.where(is_first, 0, state + 1)
        return {"action": state % 3, "state": state}


POLICIES: dict[str, Callable[[], Any]] = {
    "preset": lambda: "CartPole-v1",
    "callable": lambda: coin,
    "module": torch_policy,
}

MULTI = ("multi_sync", "multi_async")
LONG = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def weighted(weight: float) -> Any:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Parameter(torch.full((200_000,), float(weight)))
            self.last = torch.nn.Parameter(torch.full((200_000,), float(weight)))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, obs: Any) -> Any:
            values = self.first.sum() - self.last.sum() + self.first[::4096].std()
            return obs[:, 0].long() * 0, self.first[0].expand(len(obs)), values.expand(len(obs))

    return Net()
