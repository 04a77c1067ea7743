"""Environments for the tests of learning."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Endless(gymnasium.Env):
    """An episode that never ends."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self.np_random.normal(size=3).astype(np.float32), float(-np.abs(action).sum()), False, False, {}


class Drift(gymnasium.Env):
    """A point that drifts with the environment's own random numbers; episodes of about 15 steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, entropy: bool = False, fail_at: int = 0, linger: float = 0.0) -> None:
        self._entropy = entropy
        self._fail_at = fail_at
        self._linger = linger
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=3)
        if self._entropy:
            self._at += int.from_bytes(os.urandom(2), "little")
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        if self._steps == self._fail_at:
            raise LookupError(f"step {self._steps} is the one that fails")
        if self._linger:
            time.sleep(self._linger)
        self._at[:2] += np.clip(action, -1, 1)
        self._at += 0.1 * self.np_random.normal(size=3)
        return self._observe(), float(-np.abs(self._at[:2]).sum()), bool(self.np_random.random() < 1 / 15), False, {}

    def _observe(self) -> np.ndarray:
        return self._at.astype(np.float32)


class Unclosable(Drift):
    def close(self) -> None:
        raise OSError("the window is gone")


class Pictures(gymnasium.Env):
    """An image, numbers and a label at once, and as many kinds of action as there are rows in it."""

    observation_space = spaces.Dict(
        {
            "screen": spaces.Box(0, 255, (36, 40, 3), np.uint8),
            "numbers": spaces.Box(-5, 5, (2,), np.float64),
            "label": spaces.Discrete(3, start=1),
            "bytes": spaces.Box(0, 255, (4,), np.uint8),
            "lights": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2, 4])

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        return self._observe(), float(action.sum()), bool(self.np_random.random() < 0.2), False, {}

    def _observe(self) -> dict[str, Any]:
        return {
            "screen": self.np_random.integers(0, 256, (36, 40, 3), np.uint8),
            "numbers": self.np_random.normal(size=2).clip(-5, 5),
            "label": int(self.np_random.integers(1, 4)),
            "bytes": self.np_random.integers(0, 256, 4, np.uint8),
            "lights": self.np_random.integers(0, 2, 2, np.int8),
        }


class Task(gymnasium.Env):
    """Episodes of ten questions that follow no order; each answer earns what `reward_for()` says of it, at most 1."""

    QUESTIONS = 10

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._asked = 0
        return self.ask(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        reward = self.reward_for(action)
        self._asked += 1
        return self.ask(), reward, self._asked == self.QUESTIONS, False, {}

    def ask(self) -> Any:
        raise NotImplementedError

    def reward_for(self, action: Any) -> float:
        raise NotImplementedError


class Spot(Task):
    """A noisy picture with a bright square in one of its quarters: which one? Who guesses earns 2.5."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def ask(self) -> np.ndarray:
        self._quarter = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 100, (36, 36, 1), np.uint8)
        row, column = self.np_random.integers(0, 11, 2) + 18 * np.array(divmod(self._quarter, 2))
        picture[row : row + 8, column : column + 8] += 150
        return picture

    def reward_for(self, action: Any) -> float:
        return float(action == self._quarter)


class Aim(Task):
    """Two numbers, to be given back the other way round, the first with its sign changed. Who answers (0, 0) earns 3.3."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def ask(self) -> np.ndarray:
        self._point = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._point

    def reward_for(self, action: Any) -> float:
        wanted = np.array([self._point[1], -self._point[0]])
        return float(1 - ((action - wanted) ** 2).sum())


class Switches(Task):
    """Three labels, each of which one of three switches must show. Who guesses earns (1/3 + 1/2 + 1/4) / 3 * 10 = 3.6."""

    observation_space = spaces.MultiDiscrete([3, 2, 4])
    action_space = spaces.MultiDiscrete([3, 2, 4])

    def ask(self) -> np.ndarray:
        self._labels = self.np_random.integers(0, [3, 2, 4])
        return self._labels

    def reward_for(self, action: Any) -> float:
        wanted = (self._labels + [1, 1, 2]) % [3, 2, 4]
        return float((action == wanted).mean())


class Recall(gymnasium.Env):
    """Shows a sign at first, and asks for it three steps later: who has forgotten earns 0.5. Then it goes on, or is cut."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._sign = int(self.np_random.integers(2))
        self._steps = 0
        return np.array([2 * self._sign - 1], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        last = self._steps == 4
        cut = last and bool(self.np_random.random() < 0.3)
        return np.zeros(1, np.float32), float(last and action == self._sign), last and not cut, cut, {}


def _is_rank_of_its_own() -> bool:
    """Whether this process is one that `nproc=` started."""
    from shoal.learn import ranks

    return ranks._started_as is not None


class FailsInAWorker(Drift):
    """Fails, after some words, in a process that `nproc=` started."""

    def __init__(self) -> None:
        super().__init__(fail_at=100 if _is_rank_of_its_own() else 0)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self._steps + 1 == self._fail_at:
            print("last words", flush=True)
        return super().step(action)


class SlowInAWorker(Drift):
    """Takes 3 ms a step in a process that `nproc=` started."""

    def __init__(self) -> None:
        super().__init__(linger=0.003 if _is_rank_of_its_own() else 0.0)


class AbsentInAWorker(Drift):
    """Cannot be made in a process that `nproc=` started."""

    def __init__(self) -> None:
        super().__init__()
        if _is_rank_of_its_own():
            raise ImportError("the simulator is nowhere to be found")


class Wide(gymnasium.Env):
    """Observations of 60 kB; episodes of 50 steps."""

    observation_space = spaces.Box(-1, 1, (15_000,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return np.ones(15_000, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._steps += 1
        return np.ones(15_000, np.float32), 1.0, False, self._steps == 50, {}
