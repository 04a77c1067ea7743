"""What a worker takes over of CPython's `multiprocessing`, as the processes that this starts itself do.

Those get it from `multiprocessing.process.BaseProcess._bootstrap` and `multiprocessing.spawn.prepare`: the key by which
managers and listeners know a process of their program, the hooks that give a copy of a process connections of its own,
the resource tracker, who it is and who its parent is, and the start method of what it starts itself.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
from typing import Any

from shoal.process import default_method

__all__ = ["begin", "capture", "end", "is_no_fork", "take_over"]

State = dict[str, Any]

_told: State = {}  # by this process's parent
_begun = 0  # the process that has
_fresh = 0  # the process that was no fork
_tracker: tuple[Any, ...] | None = None  # its descriptor, the blocks that keep a copy at the broker, where that is


def capture() -> State | None:
    """Of this process, for its workers; None while nothing here uses multiprocessing. Can be pickled and compared."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None:
        return None
    current = process.current_process()
    util: Any = sys.modules.get("multiprocessing.util")
    context: Any = sys.modules.get("multiprocessing.context")
    chosen = context and context._default_context._actual_context
    return {
        "parent": (current.name, os.getpid()),
        "authkey": bytes(current.authkey),
        "folder": process.ORIGINAL_DIR,
        "log_to_stderr": bool(util and util._log_to_stderr),
        "log_level": util._logger.getEffectiveLevel() if util and util._logger else None,
        "method": chosen and chosen._name,
        "own_method": default_method.here.name,
        "tracker": _tracker_place(),
    }


def _tracker_place() -> tuple[int, int, int] | None:
    """Where workers find the descriptor of this process's resource tracker; None while it has none. Without it, each that
    attaches shared memory would start a tracker of its own, which unlinks the memory at the worker's end."""
    global _tracker
    module: Any = sys.modules.get("multiprocessing.resource_tracker")
    fd = module and module._resource_tracker._fd
    if fd is None:
        return None
    if _tracker is None or _tracker[0] != (os.getpid(), fd):
        from shoal._core import ipc
        from shoal.errors import Error
        from shoal.ipc.sharing import leave_fd

        blocks: list[Any] = []
        try:
            left = leave_fd(fd, blocks)
        except (OSError, Error):
            return None  # no memory for a heap, say: nobody asked for one
        if _tracker is None:
            atexit.register(_let_tracker_go)
        _tracker = (os.getpid(), fd), blocks, (ipc.heap_id(), *left.place)
    place: tuple[int, int, int] = _tracker[2]
    return place


def _let_tracker_go() -> None:
    """CPython waits at its end for the tracker, which waits for all that have its pipe: the broker, and workers of vector
    environments that nobody has closed. It ends by itself when they have."""
    tracker: Any = sys.modules["multiprocessing.resource_tracker"]._resource_tracker
    if _tracker is not None and _tracker[0] == (os.getpid(), tracker._fd):
        _tracker[1].clear()
        tracker._pid = None


def is_no_fork() -> None:
    """In a process that was not forked from another interpreter: hooks that run after a fork have nothing to do."""
    global _fresh
    _fresh = os.getpid()


def take_over(state: State | None) -> None:
    """In a worker, or a zygote: what its parent has captured."""
    global _told
    if state is None:
        return
    _told = state
    if _begun == os.getpid():
        _apply()


def begin(name: str, index: int) -> None:
    """In a worker, before any code of its user: from here on multiprocessing sees a child of the parent's program."""
    global _begun
    process: Any = sys.modules.get("multiprocessing.process")
    if process is None:
        if not _told:
            return
        from multiprocessing import process
    from multiprocessing import util

    was = process.current_process()
    parent_name, parent_pid = _told.get("parent") or (was.name, os.getppid())
    own = process.BaseProcess(name=name)
    own._identity = (index + 1,) if index >= 0 else ()
    own._parent_name, own._parent_pid = parent_name, parent_pid
    own._config.pop("daemon", None)  # a worker may start processes
    process._process_counter = itertools.count(1)
    process._children = set()
    process._current_process = own
    process._parent_process = _parent_class(process)(parent_name, parent_pid)
    if _fresh != os.getpid():
        process.BaseProcess._after_fork()  # finalizers and connections of whom this was forked from are not its own
    del was  # not before, as in CPython
    _begun = os.getpid()
    _apply()
    util.debug("worker %s has begun", name)


def end() -> None:
    """In a worker, after the code of its user: what was put in queues is sent, what was opened is closed. Processes that
    it has started end with it."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None and _begun == os.getpid():
        util._exit_function(active_children=list)


def _apply() -> None:
    if not _told:
        return
    from multiprocessing import context, process, util

    own: Any = process.current_process()
    own.authkey = _told["authkey"]
    process.ORIGINAL_DIR = _told["folder"]  # type: ignore[attr-defined]  # CPython has it, typeshed does not
    if _told["log_to_stderr"] and not util._log_to_stderr:  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        util.log_to_stderr()
    if _told["log_level"] is not None:
        util.get_logger().setLevel(_told["log_level"])
    if _told["method"] is not None:
        context._force_start_method(_told["method"])
    if _told["own_method"] is not None:
        default_method.here.fix(_told["own_method"])
    if _told["tracker"] is not None:
        with contextlib.suppress(Exception):  # it has one of its own, then
            _use_tracker(*_told["tracker"])


def _use_tracker(heap_id: int, offset: int, serial: int) -> None:
    from multiprocessing import resource_tracker

    from shoal._core import ipc

    ipc.join(heap_id)
    fd = ipc.fetch_fd(offset, serial)
    if fd >= 0:
        tracker: Any = resource_tracker._resource_tracker
        tracker._fd, tracker._pid = fd, None


def _parent_class(process: Any) -> Any:
    class Parent(process._ParentProcess):  # type: ignore[misc]  # CPython has it, typeshed does not
        """`multiprocessing.parent_process()`, whose descriptor is opened when somebody asks."""

        _opened: int | None = None

        def __init__(self, name: str, pid: int) -> None:
            super().__init__(name, pid, None)

        @property
        def _sentinel(self) -> int:
            if self._opened is None:
                self._opened = os.pidfd_open(self._pid)
            return self._opened

        @_sentinel.setter
        def _sentinel(self, value: None) -> None:
            pass

    return Parent
