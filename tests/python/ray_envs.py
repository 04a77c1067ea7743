"""Environments for the tests on Ray: what they say tells where they are stepped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class WhereEnv(gymnasium.Env[Any, Any]):
    """Observes the process that steps it, and its own step; an episode has five."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observed(), 1.0, self.steps == 5, False, {}

    def _observed(self) -> Any:
        return np.array([os.getpid(), self.steps], np.float64)


class FailingEnv(WhereEnv):
    """Raises in its third step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.steps == 2:
            raise LookupError("no license here")
        return super().step(action)


class SlowEnv(WhereEnv):
    """Waits in each step for as long as a file is not there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        import time

        while not self.gate.exists():
            time.sleep(0.02)
        return super().step(action)
