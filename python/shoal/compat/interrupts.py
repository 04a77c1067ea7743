"""What Ctrl-C leaves under way, of environments that an adapter steps one by one or together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shoal.vector.async_env import AsyncVectorEnv

__all__ = ["SettlesInterrupts"]


class SettlesInterrupts(AsyncVectorEnv):
    """Its calls begin by the methods here, which know also after Ctrl-C what is under way. settle() waits for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: dict[int, str] = {}  # what is in flight, of environments that were sent one by one

    def settle(self) -> None:
        """Waits for a call of all that Ctrl-C has left under way. What comes of it is read, since later results may need it, and
        dropped; what it raises is raised."""
        if not self._interrupted:
            return
        self._interrupted = False
        if self._pending == "call":
            self._wait(self._gathered, None)
        elif self._pending is not None:
            self._read_all(self._pending)

    def _read_all(self, call: str) -> Any:
        """Waits for the "step" or "reset" of all, and reads its result."""
        raise NotImplementedError

    def _begin_all(self, call: str, begin: Callable[[], None]) -> None:
        """Begins a "step" or "reset" of all, while nothing is in flight."""
        try:
            begin()
            self._pending = call
        except KeyboardInterrupt:
            if self.in_flight:
                self._pending, self._interrupted = call, True
            raise

    def _begin_some(self, ids: Iterable[int], call: str, begin: Callable[[], None]) -> None:
        """Begins a call of each of these environments."""
        try:
            begin()
            self._calls.update(dict.fromkeys(ids, call))
        except KeyboardInterrupt:
            if self.in_flight > len(self._calls):
                self._calls.update(dict.fromkeys(ids, call))
            raise
