"""`tianshou.env.DummyVectorEnv`, whose errors say where they come from: environments in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tianshou.env import BaseVectorEnv
from tianshou.env import DummyVectorEnv as PeersDummyVectorEnv
from tianshou.env.worker import DummyEnvWorker

from shoal.compat.arguments import factories_of
from shoal.compat.closing import WarnsAtClose
from shoal.reprs import never_raises

__all__ = ["DummyVectorEnv"]


class DummyVectorEnv(WarnsAtClose, PeersDummyVectorEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of `tianshou.env.DummyVectorEnv`, and is one. Unlike it:

    - an environment's exception says which environment it was, and what it did;
    - close() closes all environments, and what they raise there is a warning;
    - `get_env_attr` finds what a wrapper has, and gives None for what nobody has, as the classes with processes do.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], wait_num: int | None = None, timeout: float | None = None
    ) -> None:
        factories = factories_of(env_fns, type(self).__name__)
        numbered = iter(range(len(factories)))
        BaseVectorEnv.__init__(self, factories, lambda fn: _Worker(fn, next(numbered)), wait_num, timeout)

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.env_num} environments{', closed' if self.is_closed else ''}>"

    def close(self) -> None:
        self._assert_is_not_closed()
        failures: list[BaseException] = []
        for worker in self.workers:
            try:
                worker.close()
            except BaseException as error:
                failures.append(error)
        self.is_closed = True
        self._tell_close_failures(failures)


class _Worker(DummyEnvWorker):
    def __init__(self, env_fn: Callable[[], Any], index: int) -> None:
        self._index = index
        self._told("while it was built", super().__init__, env_fn)

    def get_env_attr(self, key: str) -> Any:
        for owner in (self.env, getattr(self.env, "unwrapped", self.env)):
            if hasattr(owner, key):
                return getattr(owner, key)
        try:
            return self.env.get_wrapper_attr(key)
        except AttributeError:
            return None

    def send(self, action: Any, **kwargs: Any) -> None:
        self._told("reset()" if action is None else "step()", super().send, action, **kwargs)

    def reset(self, **kwargs: Any) -> Any:
        return self._told("reset()", super().reset, **kwargs)

    def close_env(self) -> None:
        self._told("close()", super().close_env)

    def _told(self, call: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"environment {self._index}: {call}")
            raise
