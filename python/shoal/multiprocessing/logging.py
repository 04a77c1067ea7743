"""Log output of worker processes: `multiprocessing`'s own logger, and a relay that brings all of it to the parent.

    process = mp.Process(target=work, relay=True)
    with mp.LogRelay(tag=False) as relay:
        process = mp.Process(target=work, relay=relay)
        pool = mp.Pool(4, relay=relay)

What a relayed process prints, from Python or C, goes to the parent's sys.stdout and sys.stderr line by line, tagged with the
process's name. What it logs is handled by the parent's handlers at the parent's levels, with custom levels, extra fields and
exceptions as text; `%(processName)s` says who. Warnings come as stderr lines, or as log records where the parent has called
`logging.captureWarnings(True)`.

Without a relay a process writes where its parent writes, untagged, as CPython's do.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing import process, util
from multiprocessing.util import get_logger, log_to_stderr
from typing import IO, Any, Literal

from shoal.multiprocessing.descriptor import Descriptor
from shoal.multiprocessing.settings import Prepared, Settings
from shoal.reprs import never_raises

__all__ = ["LogRelay", "default_relay", "get_logger", "log_to_stderr", "relay_of"]

_TAIL_LINES = 100
_MAX_LINE = 8 * 1024  # longer lines are cut into several
_INLINE_BYTES = 32 * 1024  # longer records go through a file in memory
_PIPE_BYTES = 1024 * 1024
_IN_FILE = b"file"  # no pickle: the record is in a file that comes along


class LogRelay:
    """Brings to this process what others print and log. A thread reads it, for as long as the relay is open.

    Args:
        tag: begins each line of output with the name of the process in brackets.

    What was written when a process is killed arrives, unless it was still in a buffer of the process: Python's are flushed
    at each line. A process that prints after close() gets BrokenPipeError. Threads: any. Fork: a copy in a child does
    nothing.
    """

    def __init__(self, *, tag: bool = True) -> None:
        self._tag = tag
        self._owner = os.getpid()
        self._socket, self._senders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._changed = threading.Condition()
        self._sources: dict[int, _Source] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._read, name="shoal-log-relay", daemon=True)
        self._thread.start()
        # After everything else at exit: daemon processes have been ended by then, and the others joined.
        self._finalizer = util.Finalize(self, self.close, exitpriority=-100)

    def attach(self, worker: Any) -> Any:
        """Relays a process that has not been started yet, also one of CPython's; returns it."""
        worker.run = Prepared(worker, Settings(relay=self.end()))
        return worker

    def end(self) -> RelayEnd:
        """What a new process installs to be relayed; goes with its arguments."""
        return RelayEnd(Descriptor(self._senders.fileno()), _Levels.capture())

    def tail(self, pid: int) -> tuple[str, ...]:
        """The last lines of output of a process, oldest first."""
        with self._changed:
            source = self._sources.get(pid)
            return tuple(source.tail) if source else ()

    def drain(self, pid: int, timeout: float = 5.0) -> bool:
        """Waits until all that a process has written is here, which needs its end, and that of what it has started."""
        deadline = time.monotonic() + timeout
        with self._changed:
            return self._changed.wait_for(lambda: self._is_drained(pid), max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Takes in what has been written by now, and ends the relay."""
        if self._owner != os.getpid() or self._closing:
            return
        self._closing = True
        os.write(self._wake_write, b"\0")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()
        self._senders.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def __enter__(self) -> LogRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        state = ", of another process" if self._owner != os.getpid() else ", closed" if self._closing else ""
        return f"<LogRelay of {len(self._sources)} processes{state}>"

    def _is_drained(self, pid: int) -> bool:
        return self._closing or (pid in self._sources and not self._sources[pid].streams)

    # --- the thread

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ, self._receive)
            selector.register(self._wake_read, selectors.EVENT_READ, lambda _: None)
            while True:
                closing = self._closing  # what was written before is read before the end
                ready = selector.select(0 if closing else None)
                busy = [key.data(selector) for key, _ in ready if key.fd != self._wake_read]
                if closing and not any(busy):
                    break
            for source in list(self._sources.values()):
                for stream in list(source.streams):
                    stream.finish(selector)

    def _receive(self, selector: Any) -> bool:
        """One message of a process: its pipes, or a record."""
        data, fds, _, _ = socket.recv_fds(self._socket, 2 * _INLINE_BYTES, 2)
        try:
            message = _read_file(fds.pop()) if data == _IN_FILE else pickle.loads(data)
            if isinstance(message, tuple):
                self._add(selector, message, fds)
            else:
                _handle(message)
        except Exception:  # of a handler, or of a record that cannot be read: the rest is to come all the same
            logging.Handler().handleError(logging.makeLogRecord({"msg": "a record of another process"}))
        return True

    def _add(self, selector: Any, hello: tuple[int, str], fds: list[int]) -> None:
        pid, name = hello
        source = _Source()
        for fd, target in zip(fds, ("stdout", "stderr"), strict=True):
            os.set_blocking(fd, False)
            source.streams.add(_Stream(fd, target, f"[{name}] " if self._tag else "", source, self._changed))
        with self._changed:
            self._sources[pid] = source
        for stream in source.streams:
            selector.register(stream.fd, selectors.EVENT_READ, stream.read)


class _Source:
    """A process whose output comes here."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.streams: set[_Stream] = set()


class _Stream:
    """One of its pipes."""

    def __init__(self, fd: int, target: str, tag: str, source: _Source, changed: threading.Condition) -> None:
        self.fd = fd
        self._target = target
        self._tag = tag
        self._source = source
        self._changed = changed
        self._partial = b""

    def read(self, selector: Any) -> bool:
        """Hands on what is there; whether there was something."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return False
        if data:
            self._take(data)
        else:
            self.finish(selector)
        return True

    def finish(self, selector: Any) -> None:
        if self._partial:
            self._take(b"\n")
        selector.unregister(self.fd)
        os.close(self.fd)
        with self._changed:
            self._source.streams.discard(self)
            self._changed.notify_all()

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        while len(self._partial) > _MAX_LINE:
            lines.append(self._partial[:_MAX_LINE])
            self._partial = self._partial[_MAX_LINE:]
        texts = [line.decode(errors="backslashreplace") for line in lines]
        with self._changed:
            self._source.tail.extend(texts)
        stream = getattr(sys, self._target)
        if texts and stream is not None:
            with contextlib.suppress(ValueError, OSError):  # closed: nobody can be told
                stream.write("".join(f"{self._tag}{text}\n" for text in texts))
                stream.flush()


def _read_file(fd: int) -> Any:
    with open(fd, "rb") as file:
        file.seek(0)
        return pickle.load(file)


def _handle(values: dict[str, Any]) -> None:
    record = logging.makeLogRecord(values)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


# --- in the process that is relayed


_default: LogRelay | None = None
_default_lock = threading.Lock()


def relay_of(relay: LogRelay | Literal[True], what: str = "relay=…") -> LogRelay:
    """The relay that is meant; True: the one that a program has for those who bring none. Raises TypeError, which names the
    option `what`."""
    if relay is True:
        return default_relay()
    if not isinstance(relay, LogRelay):
        raise TypeError(f"{what} takes a LogRelay, True or False, got {relay!r}")
    return relay


def default_relay() -> LogRelay:
    """The relay of `relay=True`: open until this process ends."""
    global _default
    with _default_lock:
        if _default is None or _default._owner != os.getpid() or _default._closing:
            _default = LogRelay()
        return _default


def _renew_lock() -> None:
    """In a forked child: another thread may have held it."""
    global _default_lock
    _default_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class RelayEnd:
    """A relay, as a process that it relays has it."""

    def __init__(self, descriptor: Descriptor, levels: _Levels) -> None:
        self._descriptor = descriptor
        self._levels = levels

    def install(self) -> None:
        """From here on what this process prints and logs goes to the relay."""
        sender = socket.socket(fileno=os.dup(self._descriptor.fd))
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        for read_end, _ in pipes:
            with contextlib.suppress(OSError):  # the user's share of pipe memory is used up
                _set_pipe_size(read_end)
        hello = (os.getpid(), process.current_process().name)
        socket.send_fds(sender, [pickle.dumps(hello)], [read_end for read_end, _ in pipes])
        util._flush_std_streams()  # type: ignore[attr-defined]  # to where they wrote before
        for target, (read_end, write_end) in enumerate(pipes, 1):
            os.dup2(write_end, target)
            os.close(read_end)
            os.close(write_end)
        sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
        self._levels.apply(_RelayHandler(sender))


def _set_pipe_size(fd: int) -> None:
    import fcntl

    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ if hasattr(fcntl, "F_SETPIPE_SZ") else 1031, _PIPE_BYTES)


class _RelayHandler(logging.Handler):
    """Sends records to the relay before emit() returns, so that no end of the process loses them."""

    def __init__(self, sender: socket.socket) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = _pickled(record)
            if len(data) <= _INLINE_BYTES:
                self._sender.send(data)
            else:
                with _file_in_memory(data) as file:
                    socket.send_fds(self._sender, [_IN_FILE], [file.fileno()])
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def _file_in_memory(data: bytes) -> Iterator[IO[bytes]]:
    with open(os.memfd_create("log-record"), "r+b") as file:
        file.write(data)
        file.flush()
        yield file


def _pickled(record: logging.LogRecord) -> bytes:
    """With the message put together and the exception as text: neither arguments nor tracebacks need to be picklable."""
    values = dict(vars(record))
    values.update(msg=record.getMessage(), args=None, exc_info=None)
    if record.exc_info and not record.exc_text:
        values["exc_text"] = logging.Formatter().formatException(record.exc_info)
    try:
        return pickle.dumps(values)
    except Exception:  # an extra field
        return pickle.dumps({name: _picklable(value) for name, value in values.items()})


def _picklable(value: Any) -> Any:
    try:
        pickle.loads(pickle.dumps(value))
        return value
    except Exception:
        return repr(value)


class _Levels:
    """What decides in a process which records are made."""

    def __init__(self, of_loggers: dict[str, int], names: dict[int, str], disable: int, warnings: bool) -> None:
        self._of_loggers = of_loggers
        self._names = names
        self._disable = disable
        self._warnings = warnings

    @classmethod
    def capture(cls) -> _Levels:
        loggers = {name: logger.level for name, logger in _loggers().items() if logger.level != logging.NOTSET}
        captures_warnings = logging._warnings_showwarning is not None  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        names = dict(logging._levelToName)
        return cls(loggers, names, logging.root.manager.disable, captures_warnings)

    def apply(self, handler: logging.Handler) -> None:
        """Records go to `handler` alone: the parent's handlers see to the rest."""
        for level, name in self._names.items():
            logging.addLevelName(level, name)
        for logger in _loggers().values():  # a forked process has its parent's
            logger.handlers.clear()
            logger.propagate = True
        for name, level in self._of_loggers.items():
            logging.getLogger(name or None).setLevel(level)
        logging.disable(self._disable)
        logging.captureWarnings(self._warnings)
        logging.root.addHandler(handler)


def _loggers() -> dict[str, logging.Logger]:
    """All that exist, the root under the name ""."""
    found = {
        name: logger for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
    }
    return {"": logging.root, **found}
