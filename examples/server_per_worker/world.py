"""The environment: a client of its own simulator."""

from __future__ import annotations

import json
import socket
from typing import Any

import gymnasium
import numpy as np
import settings
from simulator import Simulator

import shoal


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        worker = shoal.worker()
        # A port that no other environment, program or user of this machine gets while this worker lives.
        self.port = worker.lease_port().port
        self.world = settings.WORLD
        self._simulator = Simulator(self.port, settings.Physics.friction)
        self._socket = socket.create_connection(("127.0.0.1", self.port))
        self._stream = self._socket.makefile("rw")
        # Instead of a class variable, which every process would count for itself.
        self._episodes = worker.counter("episodes")
        self._number = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._number = self._episodes.add()  # which no other episode of any worker gets
        return self._ask({"reset": True}), {"episode": self._number}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        position = self._ask({"move": 1 if action else -1})
        done = bool(position[0] >= settings.GOAL)
        if done:  # the best of all workers
            shoal.worker().shared.change("first", lambda first: min(first, self._number), default=self._number)
        return position, float(done), done, False, {}

    @property
    def episodes(self) -> int:
        """Those that all workers have begun."""
        return self._episodes.value

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
        self._simulator.close()

    def _ask(self, request: dict[str, Any]) -> np.ndarray:
        self._stream.write(json.dumps(request) + "\n")
        self._stream.flush()
        return np.array([json.loads(self._stream.readline())])
