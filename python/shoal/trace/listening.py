"""Listening to processes for a while."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.errors import Error
from shoal.process.running import is_running
from shoal.reprs import never_raises
from shoal.trace.processes import recorders

__all__ = ["Listener"]

_LOOK_AGAIN = 0.25
"""Seconds after which new processes are looked for."""


class Listener:
    """Keeps the spans of processes, until it is stopped.

    Threads: one at a time.

    Args:
        pids: whose; asked again now and then, so that those which come later are in it, too.

    Raises:
        RuntimeError: somebody else listens to one of them.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._capture = _core.trace.Capture()
        self._origin_ns = _core.board.now_ns()
        self._known: set[int] = set()
        self._look(first=True)

    @property
    def processes(self) -> int:
        """To how many it listens."""
        return self._capture.listeners

    @never_raises
    def __repr__(self) -> str:
        return f"<Listener to {self.processes} processes>"

    def listen(self, seconds: float) -> bool:
        """Keeps what they do for so long, or until all have ended; True: there was no room for more before that."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._capture.listen(min(left, _LOOK_AGAIN)):
                return True
            if time.monotonic() < end:
                self._look()
                if self.have_ended:
                    break
        return False

    @property
    def have_ended(self) -> bool:
        """Whether none of those that were looked for, or listened to, runs any more."""
        return not any(map(is_running, self._known))

    def listen_while(self, work: Callable[[], Any]) -> Any:
        """Keeps what they do while `work` runs in this thread; what it returns."""
        over = threading.Event()

        def listen() -> None:
            while not over.is_set() and not self._capture.listen(0.05):
                self._look()

        thread = threading.Thread(target=listen, name="shoal-trace")
        thread.start()
        try:
            return work()
        finally:
            over.set()
            thread.join()

    def stop(self) -> list[dict[str, Any]]:
        """What was kept, a dict for each process (`_core.trace.Capture.processes()`)."""
        self._capture.stop()
        found: list[dict[str, Any]] = self._capture.processes()
        return found

    def write(self, file: Path) -> None:
        """The timeline, for ui.perfetto.dev; whole, or `file` stays as it is. After stop()."""
        if file.exists() and not file.is_file():  # a pipe or a device
            self._capture.write(os.fspath(file), self._origin_ns)
            return
        target = file.resolve()
        fresh = target.with_name(f"{target.name}.tmp-{os.getpid()}")
        try:
            self._capture.write(os.fspath(fresh), self._origin_ns)
            fresh.replace(target)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def _look(self, *, first: bool = False) -> None:
        """Listens to those that it does not listen to yet; passes over whom others listen to, but for the first time."""
        pids = set(self._pids())
        self._known |= pids
        for pid in sorted(pids):
            for path in recorders(pid):
                try:
                    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                except OSError:  # it has ended
                    continue
                try:
                    self._capture.add(fd)
                except Error:  # of another Shoal
                    continue
                except RuntimeError:
                    if first:
                        raise
                finally:
                    os.close(fd)
