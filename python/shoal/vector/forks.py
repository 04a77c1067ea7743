"""Environments in worker processes, in a forked child: they are the parent's, whose results the child would take."""

from __future__ import annotations

import os
import weakref
from typing import Any, NoReturn

__all__ = ["keep_from_children", "of_another_process"]

_makers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The vector environments that have workers, and the process that made each."""


def keep_from_children(envs: Any) -> None:
    """In a forked child all that asks the workers of `envs` raises RuntimeError, and close() does nothing. Nothing is asked
    for that in this process: a step is no slower."""
    _makers[envs] = os.getpid()


def of_another_process(what: str, maker: int) -> RuntimeError:
    """For what a forked child uses and another process has made."""
    return RuntimeError(f"{what} made by process {maker}; make new ones in a forked child, as process {os.getpid()} is")


class _OfParent:
    """In a forked child, in the place of an engine or of what speaks to it."""

    def __init__(self, own: Any, maker: int) -> None:
        self._own = own  # kept: it would end with the last of its references
        self._maker = maker

    def close(self, *_: Any) -> None:
        """The workers go on for the parent."""

    def wake(self) -> None:
        """Nobody waits."""

    def __getattr__(self, name: str) -> NoReturn:
        raise of_another_process("these environments were", self._maker)


def _leave_to_parent() -> None:
    for envs, maker in _makers.items():
        envs._engine, envs._io = _OfParent(envs._engine, maker), _OfParent(envs._io, maker)
        envs._pending = None
    _makers.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
