"""One environment of a vectorised one, with the methods of `tianshou.env.worker.EnvWorker`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from tianshou.env.worker import EnvWorker

from shoal.compat.processes import Process

__all__ = ["Worker"]


class Worker(EnvWorker):
    """Asks the vectorised environment, which has the process.

    Attributes:
        action_space: a copy of the environment's, seeded by seed() and by reset(seed=…).
    """

    def __init__(self, envs: Any, index: int) -> None:
        self._envs = weakref.ref(envs)
        self._index = index
        self._env_fn = envs._env_fns[index]
        self._kwargs: dict[str, Any] = {}
        self.is_closed = False
        self.is_reset = False

    @property
    def _all(self) -> Any:
        envs = self._envs()
        if envs is None:
            raise RuntimeError("the vectorised environment of this worker is gone")
        return envs

    @functools.cached_property
    def action_space(self) -> Any:
        return self.get_env_attr("action_space")

    @property
    def process(self) -> Process:
        """The process in which the environment is."""
        pid = self._all._slots.processes[self._index]
        return Process(pid, f"Worker<{type(self._all).__name__}>-{self._index}", True)

    def seed_action_space(self, seed: Any) -> None:
        """Of this process; that of the environment is its own."""
        if self.action_space is not None:
            self.action_space.seed(seed)

    def get_env_attr(self, key: str) -> Any:
        return self._all.get_env_attr(key, self._index)[0]

    def set_env_attr(self, key: str, value: Any) -> None:
        self._all.set_env_attr(key, value, self._index)

    def send(self, action: Any, **kwargs: Any) -> None:
        """Begins a step; with None as the action, recv() resets with these arguments."""
        self._kwargs = kwargs
        if action is not None:
            self._all._begin([action], [self._index])

    def recv(self) -> Any:
        envs = self._all
        if self._index not in envs.waiting_id:
            return self.reset(**self._kwargs)
        return tuple(part[0] for part in envs._result_of(envs._finish(None, self._index)))

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observations, infos = self._all.reset([self._index], **kwargs)
        return observations[0], infos[0]

    @staticmethod
    def wait(workers: Sequence[Any], wait_num: int, timeout: float | None = None) -> list[Any]:
        raise NotImplementedError("step() of the vectorised environment waits for its environments")

    def seed(self, seed: int | None = None) -> Any:
        return self._all._seeded({self._index: seed})[0]

    def render(self, **kwargs: Any) -> Any:
        return self._all._of_each(self._index, "render", ("render", kwargs))[0]

    def close_env(self) -> None:
        """Its process ends with the others', by close() of the vectorised environment."""
