"""Environments with DI-engine's interface. Nothing here needs DI-engine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

Timestep = namedtuple("Timestep", ["obs", "reward", "done", "info"])


class CountingEnv:
    """Counts its steps from what its reset or seed said; its observation is (number, seed, steps). An action that is text is a
    command."""

    def __init__(self, number: int = 0, length: int = 5, folder: Path | None = None) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.reward_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.number, self.length, self.folder = number, length, folder
        self.seeds = -1.0
        self.steps = 0
        self.actions: list[Any] = []
        self.built = time.monotonic_ns()
        self.reset_failures = 0
        self.arguments: list[Any] = []

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        if seed < 0:
            raise ValueError("no negative seeds")
        self.seeds = float(seed)
        self.dynamic_seed = dynamic_seed

    def reset(self, start: int = 0, failures: int = 0, command: str = "") -> np.ndarray:
        self.arguments.append((start, failures, command))
        if self.reset_failures < failures:
            self.reset_failures += 1
            raise RuntimeError(f"reset failure {self.reset_failures}")
        self.reset_failures = 0
        self.obey(command)
        self.steps = start
        return self.observed()

    def step(self, action: Any) -> Timestep:
        self.actions.append(action)
        if isinstance(action, str):
            if (result := self.obey(action)) is not None:
                return result
        self.steps += 1
        done = self.steps >= self.length
        info = {"steps": self.steps} if done else {}
        return Timestep(self.observed(), np.array([self.steps], np.float32), done, info)

    def obey(self, command: str) -> Any:
        if command == "raise":
            raise KeyError("as it was told")
        if command == "die":
            print("last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if command == "hang":
            time.sleep(1000)
        if command.startswith("wait for "):
            while not Path(command.removeprefix("wait for ")).exists():
                time.sleep(0.001)
        if command == "abnormal":
            return Timestep(None, None, True, {"abnormal": True})
        return None

    def observed(self) -> np.ndarray:
        return np.array([self.number, self.seeds, self.steps], np.float32)

    def reward_shaping(self, transitions: list[Any]) -> list[Any]:
        return [*transitions, self.number]

    def method(self) -> None:
        pass

    def close(self) -> None:
        pass


class TellingEnv(CountingEnv):
    """Makes the file `begun` in its folder before it waits. Its rewards are ints."""

    def obey(self, command: str) -> Any:
        if command.startswith("wait for "):
            assert self.folder is not None
            (self.folder / "begun").touch()
        return super().obey(command)

    def step(self, action: Any) -> Any:
        return super().step(action)._replace(reward=self.steps)


class OddEnv(CountingEnv):
    """Returns what it is told to; each result has another type."""

    RESULTS = (
        Timestep([1, 2], 1.5, False, {"text": "a", "array": np.arange(3)}),
        Timestep({"deep": {"a": np.zeros(2)}}, 2, np.bool_(False), {}),
        Timestep(np.zeros((4, 4), np.float16), np.float32(0.1), False, []),
        Timestep(np.zeros(3, np.float64), np.array([[1, 2]], np.int64), False, {}),
        Timestep(np.ones(3, np.float32), np.array(7, np.int64), np.array(True), {"n": None}),
        Timestep(np.ones(3, np.float32), np.array([2**60 + 1]), False, {}),
        Timestep(np.ones(3, np.float32), 2**70, False, {}),
        Timestep(np.ones(3, np.float32), {"a": 1.0}, False, {"nested": {"b": [1, "c"]}}),
        Timestep(np.ones(3, np.float32), np.float64(np.inf), False, {}),
        Timestep(None, None, False, None),
    )

    def step(self, action: Any) -> Timestep:
        return self.RESULTS[int(action)]


class ShyEnv(CountingEnv):
    """Has its spaces only after a reset."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = self.observation_space
        del self.observation_space

    def reset(self, **arguments: Any) -> np.ndarray:
        self.observation_space = self.hidden
        return super().reset(**arguments)


class DictEnv(CountingEnv):
    """Observes a dict of arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            {"vector": spaces.Box(-1.0, 1.0, (2,), np.float32), "image": spaces.Box(0, 255, (4, 4), np.uint8)}
        )

    def observed(self) -> Any:
        return {"vector": np.full(2, self.steps, np.float32), "image": np.full((4, 4), self.steps, np.uint8)}


class SizedEnv(CountingEnv):
    """Of a size of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)

    def observed(self) -> np.ndarray:
        return np.full(self.size, self.steps, np.float32)


class GoodAtClosing(CountingEnv):
    """Leaves a file when it is closed."""

    def close(self) -> None:
        assert self.folder is not None
        (self.folder / f"closed-{self.number}").touch()
