"""`multiprocessing`'s locks and their kin, on futexes in shared memory that know their owner.

What CPython's do, these do. Besides: they need no name, no file and no descriptor each, they go through queues as well as to
children, under every start method; and none of them hangs since a process was killed. `on_owner_died` says what its
things do then:

    "recover"   who waits gets the lock, or the permits, with a warning that names the dead process; `lock.recovered` is
                true for as long as that one holds it, since what it protects may be half done
    "raise"     who waits gets shoal.OwnerDied instead; the lock is free
    "ignore"    they stay the dead one's until somebody releases them, as in CPython

A semaphore gives permits back only while every process releases what it acquired itself: see the page "Locks that know their owner".
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import process, util
from multiprocessing.context import assert_spawning
from multiprocessing.synchronize import (  # type: ignore[attr-defined]  # CPython has them, typeshed does not
    RECURSIVE_MUTEX,
    SEM_VALUE_MAX,
    SEMAPHORE,
)
from threading import BrokenBarrierError
from typing import Any

from shoal import _core
from shoal.errors import OwnerDied
from shoal.multiprocessing import reduction
from shoal.reprs import never_raises

__all__ = ["Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore"]

_native = _core.synchronize
_ON_OWNER_DIED = {"recover": 0, "raise": 1, "ignore": 2}


def _what_if_died(on_owner_died: str) -> int:
    if on_owner_died not in _ON_OWNER_DIED:
        raise ValueError(f"on_owner_died={on_owner_died!r}; there are {', '.join(map(repr, _ON_OWNER_DIED))}")
    return _ON_OWNER_DIED[on_owner_died]


def _name_of(pid: int) -> str:
    """As in "process 'Worker-1' (pid 12)"."""
    if pid < 0:
        return "a process"
    for child in list(process._children):  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        if getattr(child._popen, "pid", None) == pid:
            return f"process {child.name!r} (pid {pid})"
    return f"the process with pid {pid}"


class _Shared:
    """What may go to other processes, as a handle on its block."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        reduction.add_reducer(cls, cls._reduce_into)

    def __reduce__(self) -> Any:
        """For CPython's own picklers: to a child that is being started, which finds it while its parent has it."""
        assert_spawning(self)
        return self._reduce_into([])

    def _state(self) -> Any:
        """What a copy in another process needs beside the block."""
        return self.__dict__ or None

    def _reduce_into(self, blocks: list[Any]) -> Any:
        block = self.block  # type: ignore[attr-defined]  # the native class beside it has it
        blocks.append(block)
        return _rebuild, (type(self), _core.ipc.heap_id(), block.offset, block.serial, self._state())


def _rebuild(kind: Any, heap_id: int, offset: int, serial: int, state: dict[str, Any] | None) -> Any:
    if not _core.ipc.exists() or _core.ipc.heap_id() != heap_id:
        raise RuntimeError(
            f"a {kind.__name__} of another family of processes: it can be used by the process that made it and by those "
            "started from it"
        )
    obj = kind.__new__(kind)
    kind._native.__init__(obj, _core.ipc.acquire(offset, serial))
    if state:
        obj.__dict__.update(state)
    return obj


class _Owned(_Shared):
    """What a process holds, and may die with."""

    # Of the native class that stands beside it; its stub leaves out what begins with an underscore.
    _is_zero: Callable[[], bool]
    _is_mine: Callable[[], bool]
    _is_this_process: Callable[[], bool]
    _count: Callable[[], int]
    _get_value: Callable[[], int]

    @property
    def _semlock(self) -> Any:  # what CPython's own code and tests look into
        return self

    @property
    def handle(self) -> int:
        return int(self.block.offset)  # type: ignore[attr-defined]  # the native class beside it has it

    name = None  # there is none to unlink
    SEM_VALUE_MAX = SEM_VALUE_MAX

    def _owner_died(self, pid: int, keep: bool = False) -> None:
        """Called with it held, had from that process; `keep`: it stays so whatever is raised."""
        text = f"{_name_of(pid)} died while it held a {type(self).__name__}"
        try:
            if self.on_owner_died == _ON_OWNER_DIED["raise"]:  # type: ignore[attr-defined]  # the native class beside it has it
                raise OwnerDied(f"{text}; what it protects may be half done", pid=pid)
            text += "; it was recovered, and what it protects may be half done"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except Exception:  # also a warning that is an error: nobody will let go of it
            if not keep and self._is_held():
                self.release()  # type: ignore[attr-defined]  # the native class beside it has it
            raise

    def _is_held(self) -> bool:
        return bool(self._count())


def _owner_name(lock: Any) -> str:
    if lock._is_mine():
        name = process.current_process().name
        thread = threading.current_thread().name
        return name if thread == "MainThread" else f"{name}|{thread}"
    if lock._get_value() == 1:
        return "None"
    return "SomeOtherThread" if lock._is_this_process() else "SomeOtherProcess"


class Lock(_Owned, _native.Lock):
    """A lock that any process may release.

    Args:
        on_owner_died: see the module.

    Attributes:
        recovered: whether who holds it has it from a process that died with it.
    """

    _native = _native.Lock
    kind, maxvalue = SEMAPHORE, 1

    def __init__(self, *, ctx: Any = None, on_owner_died: str = "recover") -> None:
        _native.Lock.__init__(self, False, _what_if_died(on_owner_died))

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._is_zero()

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}(owner={_owner_name(self)})>"


class RLock(_Owned, _native.Lock):
    """A lock that its thread may acquire again, and only it may release. Arguments and attributes as Lock's."""

    _native = _native.Lock
    kind, maxvalue = RECURSIVE_MUTEX, 1

    def __init__(self, *, ctx: Any = None, on_owner_died: str = "recover") -> None:
        _native.Lock.__init__(self, True, _what_if_died(on_owner_died))

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._is_zero()

    @never_raises
    def __repr__(self) -> str:
        name = _owner_name(self)
        count = self._count() if self._is_mine() else 0 if name == "None" else "nonzero"
        return f"<{type(self).__name__}({name}, {count})>"


class Semaphore(_Owned, _native.Semaphore):
    """Permits, `value` at first. Arguments otherwise as Lock's."""

    _native = _native.Semaphore
    kind = SEMAPHORE

    def __init__(self, value: int = 1, *, ctx: Any = None, on_owner_died: str = "recover") -> None:
        _native.Semaphore.__init__(self, value, SEM_VALUE_MAX, _what_if_died(on_owner_died))

    def get_value(self) -> int:
        """How many permits there are now."""
        return self._get_value()

    def locked(self) -> bool:
        """Whether there is no permit now."""
        return self._is_zero()

    def _is_mine(self) -> bool:
        return self._is_held()

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}(value={self._get_value()})>"


class BoundedSemaphore(Semaphore):
    """Permits, never more than there were at first."""

    def __init__(self, value: int = 1, *, ctx: Any = None, on_owner_died: str = "recover") -> None:
        _native.Semaphore.__init__(self, value, value, _what_if_died(on_owner_died))

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}(value={self._get_value()}, maxvalue={self.maxvalue})>"


class _Count:
    """A number that CPython's tests read from a semaphore of a Condition."""

    def __init__(self, value: Callable[[], int]) -> None:
        self.get_value = self._get_value = value
        self._semlock = self


class _Waiters(_Shared, _native.Condition):
    _native = _native.Condition

    def __init__(self) -> None:
        _native.Condition.__init__(self)


class Condition(_Shared):
    """A condition variable over a Lock or RLock; its own RLock where none is given.

    A notification is never lost on a waiter that died: another one gets it.
    """

    def __init__(self, lock: Any = None, *, ctx: Any = None) -> None:
        self._lock: Any = RLock() if lock is None else lock
        self._condition = _Waiters()
        self._make_methods()

    def _reduce_into(self, blocks: list[Any]) -> Any:
        return _rebuild_condition, (type(self), self._condition, self._lock)

    def _make_methods(self) -> None:
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    def __exit__(self, *arguments: Any) -> None:
        self._lock.__exit__(*arguments)

    def wait(self, timeout: float | None = None) -> bool:
        """Lets go of the lock until notified, `timeout` seconds at most. Whether it was notified.

        Raises:
            AssertionError: this thread does not have the lock.
        """
        assert self._lock._is_mine(), "must acquire() condition before using wait()"
        return self._condition.wait(self._lock, timeout)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Waits until `predicate()` is true, `timeout` seconds at most; returns what it returned last."""
        end = None if timeout is None else time.monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """Ends `n` waits, those that began first.

        Raises:
            AssertionError: this thread does not have the lock.
        """
        assert self._lock._is_mine(), "lock is not owned"
        self._condition.notify(min(n, sys.maxsize))

    def notify_all(self) -> None:
        """Ends all waits."""
        self.notify(sys.maxsize)

    _sleeping_count = property(lambda self: _Count(self._condition.waiting))
    _woken_count = property(lambda self: _Count(lambda: 0))
    _wait_semaphore = property(lambda self: _Count(lambda: 0))

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self._lock}, {self._condition.waiting()})>"


class Event(_Shared, _native.Event):
    """A flag to wait for. A wait that `set()` ends returns True, also where `clear()` follows at once."""

    _native = _native.Event

    def __init__(self, *, ctx: Any = None) -> None:
        _native.Event.__init__(self)

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} at {id(self):#x} {'set' if self.is_set() else 'unset'}>"


class Barrier(_Shared, _native.Barrier):
    """Where `parties` threads or processes meet.

    A process that has met the others once, and is then killed, breaks the barrier; one that ends by itself does not.
    """

    _native = _native.Barrier

    def __init__(
        self, parties: int, action: Callable[[], Any] | None = None, timeout: float | None = None, *, ctx: Any = None
    ) -> None:
        _native.Barrier.__init__(self, parties)
        self._action = action
        self._timeout = timeout
        self._leaves_in = 0

    def _state(self) -> Any:
        return {"_action": self._action, "_timeout": self._timeout, "_leaves_in": 0}

    def wait(self, timeout: float | None = None) -> int:  # type: ignore[override]  # the native one takes another timeout
        """Waits for the others, `timeout` seconds at most; the last to come runs `action` first.

        Returns:
            0 … parties - 1, another number for each.

        Raises:
            threading.BrokenBarrierError: it was aborted, reset, timed out, or a party died.
        """
        self._leave_at_exit()
        timeout = self._timeout if timeout is None else timeout
        if timeout is not None and math.isnan(timeout):
            raise ValueError("a timeout is a number of seconds, not nan")
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            kind, round_, index = self.arrive()
            if kind == 0:
                self._go_on(_native.Barrier.wait(self, round_, None if timeout is None else end - time.monotonic()))
                return int(index)
            if kind == 1:
                self._act(round_)
                return int(index)
            if kind == 3:
                self._go_on(False)
            # The last of the round before is in its action.
            self._go_on(_native.Barrier.wait(self, round_, None if timeout is None else end - time.monotonic()))

    def _act(self, round_: int) -> None:
        try:
            if self._action is not None:
                self._action()
        except BaseException:
            self.abort()
            raise
        self._go_on(self.complete(round_))

    def _go_on(self, whole: bool) -> None:
        if whole:
            return
        pid = self.culprit
        raise BrokenBarrierError(*([f"{_name_of(pid)} died, which was a party"] if pid else []))

    def _leave_at_exit(self) -> None:
        pid = os.getpid()
        if self._leaves_in != pid:
            self._leaves_in = pid
            util.Finalize(self, _native.Barrier(self.block).leave, exitpriority=-100)

    @property
    def n_waiting(self) -> int:
        """How many wait now."""
        return int(self.arrived)

    @never_raises
    def __repr__(self) -> str:
        state = "broken" if self.broken else f"waiters={self.n_waiting}/{self.parties}"
        return f"<{type(self).__module__}.{type(self).__qualname__} at {id(self):#x}: {state}>"


def _rebuild_condition(kind: Any, condition: Any, lock: Any) -> Any:
    obj = kind.__new__(kind)
    obj._lock = lock
    obj._condition = condition
    obj._make_methods()
    return obj
