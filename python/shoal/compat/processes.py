"""Worker processes as objects that look like multiprocessing's, for classes whose peers have such."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from shoal.reprs import never_raises

__all__ = ["Process"]


class Process:
    """A worker process, as `multiprocessing.Process` shows one.

    Attributes:
        pid: of the process; 0 for one that has ended and whose place nobody takes.
        name: as the peer has it, for example "Worker<AsyncVectorEnv>-3".
        daemon: what the vector environment was told; the worker ends with its parent either way.
    """

    def __init__(self, pid: int, name: str, daemon: bool) -> None:
        self.pid = pid
        self.name = name
        self.daemon = daemon

    @never_raises
    def __repr__(self) -> str:
        return f"<Process name={self.name!r} pid={self.pid} {'started' if self.is_alive() else 'stopped'}>"

    def is_alive(self) -> bool:
        return not self._ended(0.0)

    def join(self, timeout: float | None = None) -> None:
        """Waits for the process to end, at most `timeout` seconds."""
        self._ended(timeout)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.pid <= 0:  # to which the kernel means this process group
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _ended(self, timeout: float | None) -> bool:
        if self.pid <= 0:
            return True
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], timeout)[0])
        finally:
            os.close(descriptor)
