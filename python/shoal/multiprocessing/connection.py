"""Pipes with the interface of `multiprocessing`'s, in the memory that a family of processes shares.

A Connection holds one end of a pipe; so does everybody to whom it was sent, and a forked child of whoever holds it. When
nobody holds an end any more, be it closed or its processes dead, the other end gets EOFError, or BrokenPipeError.
Listener, Client and what belongs to them are CPython's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterable
from multiprocessing import BufferTooShort, util
from multiprocessing import connection as _cpython
from multiprocessing.connection import Client, Listener
from typing import Any

from shoal._core import ipc
from shoal.errors import Error
from shoal.multiprocessing import queues
from shoal.multiprocessing.queues import Handle
from shoal.reprs import never_raises

__all__ = ["Client", "Connection", "Listener", "Pipe", "wait"]

_LOOK = 0.1
"""Seconds after which somebody looks for ends whose processes were killed."""

_LOOK_WITHOUT_DESCRIPTOR = 0.01
"""Seconds after which wait() looks at a queue that no further process can have a descriptor of."""


class Connection(ipc.Connection):
    """One end of a pipe; see `multiprocessing.connection.Connection`."""

    @never_raises
    def __repr__(self) -> str:
        cls = type(self)
        ways = " and ".join(way for way in ("readable", "writable") if getattr(self, way))
        return f"<{cls.__module__}.{cls.__qualname__} {'closed' if self.closed else ways}>"

    def send_bytes(self, buf: Any, offset: int = 0, size: int | None = None) -> None:
        """Sends the bytes of an object with a buffer, from `offset` on, `size` of them (None: all that follow)."""
        self._check_writable()
        with memoryview(buf) as view, view.cast("B") if view.itemsize > 1 or view.ndim > 1 else view as data:
            if offset < 0:
                raise ValueError("offset is negative")
            if data.nbytes < offset:
                raise ValueError("buffer length < offset")
            if size is None:
                size = data.nbytes - offset
            elif size < 0:
                raise ValueError("size is negative")
            elif offset + size > data.nbytes:
                raise ValueError("buffer length < offset + size")
            self.send_raw(data[offset : offset + size])

    def recv_bytes_into(self, buf: Any, offset: int = 0) -> int:
        """Writes the next message into a writable buffer, from `offset` on; returns its length in bytes.

        Raises:
            BufferTooShort: with the message as its argument, when there is not enough room.
        """
        self._check_readable()
        with memoryview(buf) as view, view.cast("B") as room:
            if offset < 0:
                raise ValueError("negative offset")
            if offset > room.nbytes:
                raise ValueError("offset too large")
            message = self.recv_bytes()
            if room.nbytes - offset < len(message):
                raise BufferTooShort(message)
            room[offset : offset + len(message)] = message
            return len(message)

    def _check_writable(self) -> None:
        if self.closed:
            raise OSError("handle is closed")
        if not self.writable:
            raise OSError("connection is read-only")

    def _check_readable(self) -> None:
        if self.closed:
            raise OSError("handle is closed")
        if not self.readable:
            raise OSError("connection is write-only")

    def fileno(self) -> int:
        """A descriptor of this process that is readable while recv() would not wait, for select() and its kin. From the
        first call on a thread looks for ends whose processes were killed: the kernel tells of none."""
        fd = super().fileno()
        if self.readable:
            _watch.add(self)
        return fd

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        reader, writer, own, *peer = self.parts()
        return _attach, (type(self), reader and Handle(reader), writer and Handle(writer), Handle(own), *peer)


class _Watch:
    """Tells descriptors that others poll of ends whose processes were killed.

    Threads: any. Fork: a child begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._runs = False
        self._end = threading.Event()

    def add(self, connection: Connection) -> None:
        with self._lock:
            self._watched.add(connection)
            if not self._runs:
                self._runs = True
                thread = threading.Thread(target=self._look, name="shoal-ends", daemon=True)
                thread.start()
                util.Finalize(None, self._stop, (thread,), exitpriority=-50)

    def _stop(self, thread: threading.Thread) -> None:
        """At exit: a thread that comes out of C++ into an interpreter that has ended takes the process with it."""
        self._end.set()
        thread.join()

    def _look(self) -> None:
        while not self._end.wait(_LOOK):
            ipc.sweep()
            with self._lock:
                watched = [connection for connection in self._watched if not connection.closed]
                if not watched:
                    self._runs = False
                    return
            for connection in watched:
                with contextlib.suppress(OSError):  # closed meanwhile
                    ipc.Connection.fileno(connection)  # makes it readable when the other end is gone
            del watched, connection


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.__init__)  # type: ignore[misc]  # called again on the same object


def _attach(kind: type[Connection], *parts: Any) -> Connection:
    return kind(*parts)


def Pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """Both ends of a new pipe. Without `duplex` the first one only receives, the second one only sends."""
    there = ipc.Queue(max_bytes=queues.SIMPLE_QUEUE_BYTES).block
    back = ipc.Queue(max_bytes=queues.SIMPLE_QUEUE_BYTES).block if duplex else None
    first, second = ipc.Block(1), ipc.Block(1)
    return (
        Connection(there, back, first, second.offset, second.serial),
        Connection(back, there, second, first.offset, first.serial),
    )


def wait(object_list: Iterable[Any], timeout: float | None = None) -> list[Any]:
    """Those of `object_list` (connections, sentinels, sockets, whatever has a fileno()) that are ready to be read.

    Waits until there is one, for `timeout` seconds at most (None: for ever). An end of a pipe is ready when recv() would
    not wait, also because the other end is gone.
    """
    objects = list(object_list)
    ours = [obj for obj in objects if isinstance(obj, (ipc.Connection, queues._Reader, queues._QueueBase))]
    if not ours:
        return _cpython.wait(objects, timeout)
    others = [obj for obj in objects if all(obj is not own for own in ours)]
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        ready = {id(obj) for obj in ours if _ready(obj)}
        descriptors = [fd for fd in map(_descriptor, ours) if fd is not None]
        left = _LOOK if len(descriptors) == len(ours) else _LOOK_WITHOUT_DESCRIPTOR
        if end is not None:
            left = min(left, max(0.0, end - time.monotonic()))
        found = _cpython.wait([*descriptors, *others], 0 if ready else left)
        ready |= {id(obj) for obj in others if obj in found}
        if found:  # a descriptor may tell of what somebody else took meanwhile
            ready |= {id(obj) for obj in ours if _ready(obj)}
        if ready or (end is not None and time.monotonic() >= end):
            return [obj for obj in objects if id(obj) in ready]
        ipc.sweep()


def _descriptor(obj: Any) -> int | None:
    """None where as many processes as may have one have one. Here it is this module that looks for killed ends."""
    try:
        return ipc.Connection.fileno(obj) if isinstance(obj, ipc.Connection) else obj.fileno()
    except Error:
        return None


def _ready(obj: Any) -> bool:
    return obj._poll(0) if isinstance(obj, queues._QueueBase) else obj.poll(0)


def __getattr__(name: str) -> Any:
    with contextlib.suppress(AttributeError):
        return getattr(_cpython, name)  # deliver_challenge, … are CPython's
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
