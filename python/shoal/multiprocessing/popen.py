"""How a Process object becomes a process: over Shoal's launchers, or by a fork of this process."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import context as _cpython
from multiprocessing import popen_fork, resource_tracker, util
from typing import Any

from shoal import _core
from shoal.ipc.pickling import explain, in_the_way, is_of_pickling
from shoal.multiprocessing import child, main_names, reduction
from shoal.multiprocessing.start_methods import Options
from shoal.process import _launcher
from shoal.process._importing import refuse_to_start

__all__ = ["ForkPopen", "LaunchedPopen", "own_pidfd", "set_preload"]

_UNKNOWN_EXIT = 255  # as CPython reports a process whose status nobody could collect

_preload: tuple[str, ...] = ()
_launch_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child: another thread may have held it."""
    global _launch_lock
    _launch_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def set_preload(modules: Sequence[str]) -> None:
    """What `set_forkserver_preload` says. `__main__`, CPython's default, means nothing here: what it defines travels."""
    global _preload
    _preload = tuple(name for name in modules if name != "__main__")


class LaunchedPopen:
    """A process of a zygote, or a spawned one; what `multiprocessing.process.BaseProcess` calls its popen.

    Attributes:
        pid: of the process.
        sentinel: a descriptor that becomes readable when the process has ended and its exit code is known.
        returncode: None while it runs.

    Threads: any.
    """

    DupFd = child.InheritedFd

    def __init__(self, process_obj: Any, method: str, options: Options) -> None:
        refuse_to_start()
        util._flush_std_streams()  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        self.method = method
        self.returncode: int | None = None
        self.lost: str | None = None
        """What it ended with where nobody could collect its status, in words; None otherwise."""
        self._fds: list[int] = []
        self._fd_names: dict[str, int] = {}
        self.sentinel = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._held = [self._start(process_obj, options)]
        except BaseException:
            os.close(self.sentinel)
            raise
        self.pid = self._held[0].pid
        waiting = _hold_until_loaded(self._held[0], self._blocks) if self._blocks else None
        self.finalizer = util.Finalize(self, _release, (self._held, self.sentinel, waiting))

    def duplicate_for_child(self, fd: int) -> int:
        """While the process object is pickled: `fd` goes with it; returns the number that the process finds it by."""
        self._fds.append(fd)
        return len(self._fds) - 1

    def _start(self, process_obj: Any, options: Options) -> Any:
        for name, fd in (("stdout", 1), ("stderr", 2)):
            with contextlib.suppress(OSError):
                if os.get_inheritable(fd):  # no file of the program's own that has the number
                    self._fd_names[name] = self.duplicate_for_child(fd)
        self._fd_names["parent"] = self.duplicate_for_child(own_pidfd())
        self._fd_names["heap"] = self.duplicate_for_child(_core.ipc.fd())
        tracker = resource_tracker.getfd()
        assert tracker is not None  # it has been started by this
        self._fd_names["tracker"] = self.duplicate_for_child(tracker)
        if options.gpu and os.path.exists("/dev/nvidiactl"):
            _core.ipc.open_broker()  # here, where it outlives the processes that share device memory
        data, self._blocks, by_name = _pickled(process_obj, self)
        preparation = pickle.dumps(child.preparation(process_obj, self.method, self._fd_names, by_name))
        with _launch_lock:
            launcher = _launcher.launcher(
                self.method,
                preload=_preload_of(self.method, options),
                threads=options.threads or 0,
                hide_gpu=not options.gpu,
                env=dict(options.env),
                plain=True,
            )
        name = process_obj.name.encode(errors="backslashreplace").decode()
        return launcher.start_process(name, (preparation, data), self._fds, self.sentinel)

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            worker = self._held[0]
            if flag != os.WNOHANG:
                worker.join()
            if not worker.is_alive:
                code = worker.exitcode
                if code is None:
                    self.lost = worker.ended_with
                self.returncode = _UNKNOWN_EXIT if code is None else code
                _core.ipc.sweep()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            self._held[0].join(timeout if timeout is None else max(0.0, timeout))
        return self.poll()

    def _send_signal(self, number: int) -> None:
        if self.returncode is None:
            self._held[0].kill(number)

    def interrupt(self) -> None:
        self._send_signal(signal.SIGINT)

    def terminate(self) -> None:
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._send_signal(signal.SIGKILL)

    def close(self) -> None:
        self.finalizer()


def _hold_until_loaded(worker: Any, blocks: list[Any]) -> threading.Thread:
    """Holds the blocks that the payload names until the process does so itself, or has ended; no longer, since who else
    holds an end of a pipe is how the other end knows that it is open."""

    def wait() -> None:
        worker.recv()  # nothing comes, and then the end of the channel
        blocks.clear()
        _waiting.discard(threading.current_thread())

    global _joins_in
    thread = threading.Thread(target=wait, name="shoal start", daemon=True)
    if _joins_in != os.getpid():
        _joins_in = os.getpid()
        _waiting.clear()
        util.Finalize(None, _join_waiting, exitpriority=-50)
    _waiting.add(thread)
    thread.start()
    return thread


_waiting: set[threading.Thread] = set()
_joins_in = 0  # the process that has the threads


def _join_waiting() -> None:
    """At exit, when there are no children any more: a thread that comes out of C++ into an interpreter that has ended
    takes the process with it."""
    for thread in list(_waiting):
        thread.join()


def _release(held: list[Any], sentinel: int, waiting: threading.Thread | None) -> None:
    if waiting is not None and waiting is not threading.current_thread():
        waiting.join()
    held.clear()  # first: the worker writes to the eventfd
    os.close(sentinel)


class ForkPopen(popen_fork.Popen):
    """A fork of this process. `sentinel` is its pidfd, or readable at once where its end was collected elsewhere."""

    def __init__(self, process_obj: Any, options: Options) -> None:
        refuse_to_start()
        if not options.allow_unsafe_fork:
            _refuse_hazards()
        self._options = options
        super().__init__(process_obj)

    def _launch(self, process_obj: Any) -> None:
        parent = os.getpid()
        parent_sentinel = own_pidfd()
        code = 1
        classes = main_names.before_fork()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                child.after_fork(parent, process_obj, self._options)
                main_names.after_fork(parent, classes)
                code = process_obj._bootstrap(parent_sentinel=parent_sentinel)
            finally:
                os._exit(code)
        try:
            self.sentinel = os.pidfd_open(self.pid)
        except ProcessLookupError:  # SIGCHLD is ignored, or has a handler that has collected it
            self.sentinel = os.eventfd(1, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None and super().poll(flag) is not None and _core.ipc.exists():
            _core.ipc.sweep()
        return self.returncode


_own_pidfd: tuple[int, int] | None = None  # (process id, descriptor)


def own_pidfd() -> int:
    """Of this process, for those that it starts to watch."""
    global _own_pidfd
    if _own_pidfd is None or _own_pidfd[0] != os.getpid():
        _own_pidfd = (os.getpid(), os.pidfd_open(os.getpid()))
    return _own_pidfd[1]


def _preload_of(method: str, options: Options) -> tuple[str, ...]:
    """A zygote has what this process's objects are likely to be made of."""
    if method != "forkserver":
        return (child.__name__, *options.preload)
    heavy = tuple(name for name in ("numpy", "torch") if sys.modules.get(name))
    return tuple(dict.fromkeys((child.__name__, *heavy, *_preload, *options.preload)))


def _refuse_hazards() -> None:
    """CPython's own threads are not counted: it gives their locks to the child. Native ones have locks of their own."""
    hazards = _core.process.fork_hazards(threads=_native_threads_run())
    _launcher.refuse_fork(hazards, ", or get_context('fork', allow_unsafe_fork=True).")


def _native_threads_run() -> bool:
    """Whether threads other than Python's are alive. One of Python's that is beginning or has just ended is known to the
    kernel alone for a moment."""
    for _ in range(50):
        of_python = {str(thread.native_id) for thread in threading.enumerate()}
        if all(thread.partition(" ")[0] in of_python for thread in _core.process.foreign_threads()):
            return False
        time.sleep(0.002)
    return True


@contextlib.contextmanager
def _spawning(popen: Any) -> Iterator[None]:
    before = _cpython.get_spawning_popen()
    _cpython.set_spawning_popen(popen)
    try:
        yield
    finally:
        _cpython.set_spawning_popen(before)


def _pickled(process_obj: Any, popen: LaunchedPopen) -> tuple[bytes, list[Any], str]:
    """`process_obj` for the new process, with its descriptors in `popen`; the blocks that it names; and what kept it from travelling
    by value, where it does not.

    Raises:
        PicklingError: naming the part that cannot be pickled.
    """
    first = len(popen._fds)
    with _spawning(popen):
        if _is_of_executor(process_obj) and (found := reduction.by_reference(process_obj)):
            return *found, ""
        del popen._fds[first:]
        try:
            return *reduction.written(process_obj), ""
        except Exception as error:
            del popen._fds[first:]
            found = reduction.by_reference(process_obj)
            descriptors = len(popen._fds)
            if found is None and not is_of_pickling(error):
                raise
            part, cause, name = _failing_argument(process_obj, error)
            if found is None:
                raise explain(part, cause, _dump_by_value, name) from cause
            by_name = in_the_way(part, cause, _dump_by_value, name)
            del popen._fds[descriptors:]
            return *found, by_name


def _failing_argument(process_obj: Any, error: Exception) -> tuple[Any, Exception, str]:
    """What of a process cannot be pickled, why, and its name."""
    for name in ("target", "args", "kwargs"):
        part = getattr(process_obj, f"_{name}")
        try:
            _dump_by_value(part)
        except Exception as cause:
            return part, cause, name
    return process_obj, error, type(process_obj).__name__


def _is_of_executor(process_obj: Any) -> bool:
    """Whether it is concurrent.futures', whose tasks are pickled by reference: then the script runs in the process anyway, and
    the initializer is to be of the same names."""
    target = getattr(process_obj, "_target", None)
    return getattr(target, "__module__", None) == "concurrent.futures.process" and bool(child.main_script())


def _dump_by_value(obj: Any) -> bytes:
    return reduction.written(obj)[0]
