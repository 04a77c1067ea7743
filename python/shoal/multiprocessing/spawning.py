"""Several processes that run one function, joined as one: `torch.multiprocessing.spawn` and its kin.

A process that raises sends its traceback through a file in memory, which is there before it starts and needs no name.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.reduction import DupFd
from typing import Any

from shoal import _core
from shoal.multiprocessing.start_methods import default_context
from shoal.reprs import never_raises

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

_log = logging.getLogger(__name__)

_LAST_GRACE = 30.0  # seconds between SIGTERM and SIGKILL where the caller names none; torch's


class ProcessException(Exception):
    """One of several processes failed.

    Attributes:
        msg: what happened.
        error_index: which one.
        error_pid: its process id.
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """It raised; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """It ended without raising.

    Attributes:
        exit_code: as `Process.exitcode`.
        signal_name: for example "SIGKILL"; None where it was no signal.
    """

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


class _MemoryFile:
    """A file without a name that a process and its parent see; goes with a Process object's arguments."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.memfd_create("shoal-traceback") if fd is None else fd

    def write(self, text: str) -> None:
        with open(self._fd, "wb", closefd=False) as file:
            file.write(text.encode(errors="surrogateescape"))

    def read(self) -> str:
        return os.pread(self._fd, os.fstat(self._fd).st_size, 0).decode(errors="surrogateescape")

    def __reduce__(self) -> Any:
        return _inherited_file, (DupFd(self._fd),)

    def __del__(self) -> None:
        os.close(self._fd)


def _inherited_file(fd: Any) -> _MemoryFile:
    return _MemoryFile(fd.detach())


def _run(fn: Callable[..., Any], index: int, args: Sequence[Any], error_file: _MemoryFile) -> None:
    try:
        _core.process.interrupt_after_parent()
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent's affair
    except Exception:
        error_file.write(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together.

    Attributes:
        processes: them, in order.
        sentinels: of those that have not been joined yet: each with its index.
        error_files: of each, where its traceback would be.
    """

    def __init__(self, processes: Sequence[Any], error_files: Sequence[Any]) -> None:
        self.processes = processes
        self.error_files = error_files
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.processes)} processes, {len(self.sentinels)} not joined>"

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one or more have ended. When one has failed, ends the others and raises what happened to it.

        Args:
            timeout: seconds to wait; None: for ever.
            grace_period: seconds that the others have to end by themselves, and then from SIGTERM to SIGKILL.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException: the first to fail raised.
            ProcessExitedException: it ended with another exit code than 0, or was killed.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(list(self.sentinels), timeout=timeout):
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        self._end_others(grace_period)
        raise self._error(failed)

    def _end_others(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Terminating process %s via signal SIGTERM", process.pid)
                process.terminate()
        self._join_all(_LAST_GRACE if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Unable to shutdown process %s via SIGTERM , forcefully exiting via SIGKILL", process.pid)
                process.kill()
            process.join()

    def _join_all(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def _error(self, index: int) -> ProcessException:
        process = self.processes[index]
        if trace := self.error_files[index].read():
            message = f"\n\n-- Process {index} terminated with the following error:\n{trace}"
            return ProcessRaisedException(message, index, process.pid)
        code = process.exitcode
        if lost := getattr(process._popen, "lost", None):
            return ProcessExitedException(f"process {index} ended with {lost}", index, process.pid, code)
        if code >= 0:
            return ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        return ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """ProcessContext, under its old name."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[Any]) -> None:
        warnings.warn("SpawnContext is renamed to ProcessContext since 1.4 release.", stacklevel=2)
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Starts `nprocs` processes, each of which calls `fn(index, *args)`.

    Args:
        join: wait for all of them; otherwise that is the caller's to do, with the ProcessContext that is returned.
        daemon: they end with this process, and have no processes of their own.
        start_method: as `get_context()`'s.

    Raises:
        ProcessRaisedException, ProcessExitedException: of the first to fail, when the others have been ended (join).
        PicklingError: naming the part of `fn` or `args` that cannot be pickled; no process was started.
    """
    return start_in(default_context().get_context(start_method), fn, args, nprocs, join, daemon)


def start_in(
    context: Any, fn: Callable[..., Any], args: Sequence[Any], nprocs: int, join: bool, daemon: bool
) -> ProcessContext | None:
    """start_processes() with processes of `context`."""
    processes: list[Any] = []
    error_files = [_MemoryFile() for _ in range(nprocs)]
    try:
        for i, error_file in enumerate(error_files):
            process = context.Process(target=_run, args=(fn, i, args, error_file), daemon=daemon)
            process.start()
            processes.append(process)
    except BaseException:
        for process in processes:
            process.kill()
            process.join()
        raise
    group = ProcessContext(processes, error_files)
    if not join:
        return group
    while not group.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """start_processes() with fresh interpreters; as `torch.multiprocessing.spawn`."""
    warn_unless_spawn(start_method)
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")


def warn_unless_spawn(start_method: str) -> None:
    """For spawn(), which takes the argument for the sake of those who give it."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t"
            " shoal.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=3,
        )
