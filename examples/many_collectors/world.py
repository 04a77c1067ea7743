"""An environment that computes on the CPU, with a library that synchronises with a GPU."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from device import synchronize


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._observe(), float(action), False, self._steps == 50, {}

    def _observe(self) -> np.ndarray:
        observation = self.np_random.uniform(-1, 1, 8).astype(np.float32)
        synchronize()  # after the transfer of a tensor, from the CPU to the CPU
        return observation
