"""What keeps a service running: it is closed, it is forgotten, or the program ends."""

from __future__ import annotations

import abc
import atexit
import os
import threading
import weakref
from multiprocessing import util

from shoal import _core
from shoal.serve.client import Directory, drop_ended

__all__ = ["Manager", "manage"]

_FORGOTTEN = "the model service was closed, since nobody in the program that made it had it any more"


class Manager(abc.ABC):
    """Who answers for a service, and the threads that look after them. It knows neither the service nor its directory, so that a
    forgotten one ends.

    Attributes:
        frontend: where clients arrive.

    Threads: any. Fork: the copy in a forked child ends nothing.
    """

    def __init__(self) -> None:
        self.frontend = _core.serve.Frontend()
        self._closing = False
        self._pid = os.getpid()
        # A collection of garbage, which may end the service, comes in any thread, and so in one that has the lock.
        self._lock = threading.RLock()
        self._watchers: list[threading.Thread] = []

    def close(self) -> None:
        """Ends it, and returns when it has ended. May be called again."""
        if self._pid != os.getpid():
            return
        self._end("the model service was closed")
        for watcher in self._watchers:
            if watcher is not threading.current_thread():
                watcher.join()
        self._release()
        drop_ended()
        _open.discard(self)

    def forget(self) -> None:
        """Ends it, now that nobody in this process can ask any more. The watchers see to the rest: whoever collects garbage waits
        for nobody."""
        if self._pid == os.getpid():
            self._end(_FORGOTTEN)

    def _end(self, notice: str) -> None:
        with self._lock:
            self._closing = True
        self._tell(notice)

    def _tell(self, notice: str) -> None:
        """Tells everybody why nothing is answered any more."""
        self.frontend.close(notice)

    @abc.abstractmethod
    def _release(self) -> None:
        """What is left when the watchers have ended."""


def manage(directory: Directory, manager: Manager) -> util.Finalize:
    """Ends the service of this directory when nobody has it any more, or with the program. Who closes it before cancels what is
    returned, which keeps the manager."""
    _open.add(manager)
    return util.Finalize(directory, manager.forget)


_open: weakref.WeakSet[Manager] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for manager in list(_open):
        manager.close()
