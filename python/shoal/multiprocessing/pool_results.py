"""What the asynchronous calls of a pool return."""

from __future__ import annotations

import builtins
import itertools
import threading
import types
from collections import deque
from collections.abc import Callable
from multiprocessing import TimeoutError
from typing import TYPE_CHECKING, Any

from shoal import _core
from shoal.multiprocessing.pool_worker import loads
from shoal.reprs import never_raises

if TYPE_CHECKING:
    from shoal.multiprocessing.pool import Pool

__all__ = ["ApplyResult", "AsyncResult", "IMapIterator", "IMapUnorderedIterator", "MapResult"]

_TimedOut = builtins.TimeoutError  # what shoal._core raises


class ApplyResult:
    """What apply_async() returns.

    Threads: any.
    """

    def __init__(
        self,
        pool: Pool,
        callback: Callable[[Any], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> None:
        self._pool: Pool | None = pool  # which lives for as long as somebody waits
        self._job = _core.pool.Job()
        self._callback = callback
        self._error_callback = error_callback
        self._event = threading.Event() if callback or error_callback else None  # set after the callback
        self._lock = threading.Lock()
        self._outcome: tuple[bool, Any] | None = None

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'ready' if self.ready() else 'under way'}>"

    def ready(self) -> bool:
        """Whether there is a result, and its callback has been called."""
        return self._event.is_set() if self._event else self._job.finished()

    def successful(self) -> bool:
        """Whether it returned. Raises ValueError while it is not ready."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._load()[0]

    def wait(self, timeout: float | None = None) -> None:
        if self._event:
            self._event.wait(timeout)
        else:
            self._job.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """What the call returned; raises what it raised, or WorkerDied, or BrokenPool.

        Raises:
            multiprocessing.TimeoutError: there was no result in `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError(f"no result in {timeout} s")
        ok, value = self._load()
        if ok:
            return value
        raise value

    def _load(self) -> tuple[bool, Any]:
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = self._collect()
                except Exception as error:  # it cannot be unpickled here
                    self._outcome = False, error
                self._pool = None
            return self._outcome

    def _collect(self) -> tuple[bool, Any]:
        failure = self._job.first_failure()
        if failure is None:
            return True, self._value()
        outcome = self._job.take(failure, 0)
        assert outcome is not None
        return False, loads(outcome[2])

    def _value(self) -> Any:
        outcome = self._job.take(0, 0)
        assert outcome is not None
        return loads(outcome[2])

    def _call_back(self) -> None:
        assert self._event is not None
        try:
            ok, value = self._load()
            callback = self._callback if ok else self._error_callback
            if callback is not None:
                callback(value)
        finally:
            self._event.set()

    __class_getitem__: Any = classmethod(types.GenericAlias)


AsyncResult = ApplyResult


class MapResult(ApplyResult):
    """What map_async() returns. It is ready when all chunks are done; get() raises what came first."""

    def _value(self) -> list[Any]:
        values: list[Any] = []
        for index in itertools.count():
            outcome = self._job.take(index, 0)
            if outcome is None:
                return values
            values += loads(outcome[2])
        raise AssertionError


class IMapIterator:
    """What imap() returns.

    Threads: one at a time.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Pool | None = pool
        self._job = _core.pool.Job()
        self._values: deque[Any] = deque()
        self._index = 0

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}, chunks taken: {self._index}{', exhausted' if self._pool is None else ''}>"

    def __iter__(self) -> IMapIterator:
        return self

    def next(self, timeout: float | None = None) -> Any:
        """The next value.

        Raises:
            multiprocessing.TimeoutError: there was none in `timeout` seconds.
        """
        while not self._values:
            try:
                outcome = self._take(timeout)
            except _TimedOut as error:
                raise TimeoutError(f"no result in {timeout} s") from error
            if outcome is None:
                self._pool = None
                raise StopIteration
            _, ok, data, _held = outcome  # until what it names has been loaded
            self._index += 1
            if not ok:
                raise loads(data)
            self._values.extend(loads(data))
        return self._values.popleft()

    __next__ = next

    def _take(self, timeout: float | None) -> Any:
        return self._job.take(self._index, timeout)


class IMapUnorderedIterator(IMapIterator):
    """What imap_unordered() returns."""

    def _take(self, timeout: float | None) -> Any:
        return self._job.take_any(timeout)
