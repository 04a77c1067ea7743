"""Queues with the interface of `multiprocessing`'s, in the memory that a family of processes shares.

What is different from CPython's:

- There is no feeder thread. put() pickles the object before it returns: what cannot be pickled raises there, what is changed
  afterwards does not change what was put, and nothing is left to flush when a process ends.
- A process killed in the middle of put() or get() costs at most its own object; nobody hangs on a lock that it held.
- Lambdas, closures and local classes may be put. Tensors and arrays cross as handles (see reduction.py).
- A queue may be put into a queue, also of a process that runs already.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from queue import Empty, Full
from typing import Any

from shoal._core import ipc
from shoal.multiprocessing import reduction
from shoal.reprs import never_raises

__all__ = ["Empty", "Full", "JoinableQueue", "Queue", "SimpleQueue"]

SIMPLE_QUEUE_BYTES = 64 * 2**20
"""What a SimpleQueue, or a direction of a Pipe, holds before put() waits; CPython's hold 64 KiB."""

_SEM_VALUE_MAX = 2**31 - 1


class Handle:
    """A block of the heap on its way to another process, held by the message that names it."""

    __slots__ = ("block",)

    def __init__(self, block: ipc.Block) -> None:
        self.block = block

    def __reduce__(self) -> Any:
        raise RuntimeError(
            "queues and connections of shoal.multiprocessing are pickled by its own processes, queues and pipes only, "
            "which hold them until they are unpickled; a stock pickle cannot"
        )


def _reduce_handle(handle: Handle, blocks: list[ipc.Block]) -> Any:
    return reduction.reduce_block(handle.block, blocks)


reduction.add_reducer(Handle, _reduce_handle)


def _attach(kind: type[_QueueBase], block: ipc.Block, state: dict[str, Any]) -> _QueueBase:
    queue = kind.__new__(kind)
    queue.__dict__.update(state)
    queue._have(ipc.Queue(block))
    return queue


class _NoLock:
    """In the place of a lock around what happens at once anyhow."""

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        return True

    def release(self) -> None:
        pass

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *exception: object) -> None:
        pass


class _Reader:
    """What CPython's queues call `_reader`, for those who use it directly: its pools do, and close the end that they do not
    need."""

    def __init__(self, queue: _QueueBase) -> None:
        self._queue = queue

    @property
    def closed(self) -> bool:
        return self._queue._get == self._queue._refuse

    def close(self) -> None:
        self._queue._get = self._queue._refuse

    def fileno(self) -> int:
        return self._queue.fileno()

    def poll(self, timeout: float | None = 0.0) -> bool:
        return self._queue._poll(timeout)

    def recv(self) -> Any:
        return self._queue._core.get()

    def recv_bytes(self) -> bytes:
        return self._queue._core.get_bytes()


class _Writer:
    """What CPython's queues call `_writer`."""

    def __init__(self, queue: _QueueBase) -> None:
        self._queue = queue

    @property
    def closed(self) -> bool:
        return self._queue._put == self._queue._refuse

    def close(self) -> None:
        self._queue._put = self._queue._refuse

    def send(self, obj: Any) -> None:
        self._queue._core.put(obj)

    def send_bytes(self, data: Any) -> None:
        self._queue._core.put_bytes(data)


class _QueueBase:
    # Classes of their own, and not subclasses of the one in C++: who derives from these may pickle his class by value,
    # mix in others, and give it a metaclass.
    _closed = False
    _put: Callable[..., Any]
    _get: Callable[..., Any]
    _rlock = _wlock = _NoLock()

    @never_raises
    def __repr__(self) -> str:
        cls = type(self)
        most = getattr(self, "_maxsize", _SEM_VALUE_MAX)
        bound = "" if most == _SEM_VALUE_MAX else f" maxsize={most}"
        closed = " closed" if self._closed else ""
        return f"<{cls.__module__}.{cls.__qualname__} qsize={self._core.qsize()}{bound}{closed}>"

    def _have(self, core: ipc.Queue) -> None:
        self._core = core
        self._put, self._get, self._poll = core.put, core.get, core.poll

    def __reduce__(self) -> Any:
        state = {name: value for name, value in self.__dict__.items() if name not in _OF_THIS_PROCESS}
        return _attach, (type(self), Handle(self._core.block), state)

    def fileno(self) -> int:
        """A descriptor of this process that is readable while there are objects."""
        return self._core.fileno()

    def empty(self) -> bool:
        """Whether there was nothing in it a moment ago."""
        return self._core.empty()

    def close(self) -> None:
        """This process puts and gets no more; others go on."""
        if not self._closed:
            self._closed = True
            self._put = self._get = self._refuse

    def _refuse(self, *_: Any) -> Any:
        raise ValueError(f"Queue {self!r} is closed")

    @property
    def _reader(self) -> _Reader:
        return _Reader(self)

    @property
    def _writer(self) -> _Writer:
        return _Writer(self)

    __class_getitem__: Any = classmethod(types.GenericAlias)


_OF_THIS_PROCESS = frozenset({"_core", "_put", "_get", "_poll", "_closed"})


class Queue(_QueueBase):
    """A queue of any number of objects, or of `maxsize` at most; see `multiprocessing.Queue`."""

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        self._maxsize = maxsize if maxsize > 0 else _SEM_VALUE_MAX
        self._ignore_epipe = False
        self._have(ipc.Queue(max_items=max(0, maxsize)))

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Puts an object; raises here what keeps it from being pickled.

        Args:
            timeout: seconds to wait for room; None: until there is some. Without `block`: none.

        Raises:
            Full: there was no room in time.
            ValueError: after close().
        """
        self._put(obj, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The oldest object.

        Args:
            timeout: seconds to wait for one; None: until there is one. Without `block`: none.

        Raises:
            Empty: there was none in time.
            ValueError: after close().
        """
        return self._get(block, timeout)

    def put_nowait(self, obj: Any) -> None:
        self.put(obj, False)

    def get_nowait(self) -> Any:
        return self.get(False)

    def qsize(self) -> int:
        """How many objects were in it a moment ago."""
        return self._core.qsize()

    def full(self) -> bool:
        """Whether there was no room for another one a moment ago."""
        return self._core.full()

    def join_thread(self) -> None:
        """Returns at once: what was put is in the queue."""
        assert self._closed, f"Queue {self!r} not closed"

    def cancel_join_thread(self) -> None:
        """Does nothing: there is no thread, and nothing is lost when the process ends."""


class JoinableQueue(Queue):
    """A Queue that counts what is done of what was put."""

    def task_done(self) -> None:
        """One of the objects that were put is done. Raises ValueError when all are."""
        if not self._core.count_done():
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Waits until all that was put is done."""
        self._core.wait_done()


class SimpleQueue(_QueueBase):
    """A queue with put() and get() only; put() waits while it holds more than 64 MiB."""

    def __init__(self, *, ctx: Any = None) -> None:
        self._have(ipc.Queue(max_bytes=SIMPLE_QUEUE_BYTES))

    def put(self, obj: Any) -> None:
        """Puts an object; raises here what keeps it from being pickled."""
        self._put(obj)

    def get(self) -> Any:
        """The oldest object, once there is one."""
        return self._get()

    def _refuse(self, *_: Any) -> Any:
        raise OSError("handle is closed")
