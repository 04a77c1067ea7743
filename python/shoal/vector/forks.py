"""What belongs to the process that made it, in a forked child: environments in worker processes, whose results the child
would take, and collectors."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = ["keep_from_children", "of_another_process"]


class _Made(NamedTuple):
    what: str
    maker: int
    parts: tuple[str, ...]
    leave: Callable[[Any], None]


_made: weakref.WeakKeyDictionary[Any, _Made] = weakref.WeakKeyDictionary()


def keep_from_children(made: Any, what: str, parts: Sequence[str], leave: Callable[[Any], None]) -> None:
    """In a forked child all that `made` asks of these parts raises RuntimeError, and their close() does nothing. Nothing is
    asked for that in this process: a step is no slower.

    Args:
        what: as of `of_another_process`.
        parts: attributes of `made`.
        leave: is called with `made` in a forked child, before its parts are replaced.
    """
    _made[made] = _Made(what, os.getpid(), tuple(parts), leave)


def of_another_process(what: str, maker: int) -> RuntimeError:
    """For what a forked child uses and another process has made; `what` is "these environments were", say."""
    return RuntimeError(f"{what} made by process {maker}; make new ones in a forked child, as process {os.getpid()} is")


class _OfParent:
    """In a forked child, in the place of a part."""

    def __init__(self, own: Any, what: str, maker: int) -> None:
        self._own = own  # kept: it would end with the last of its references
        self._what = what
        self._maker = maker

    def close(self, *_: Any) -> None:
        """The workers go on for the parent."""

    def wake(self) -> None:
        """Nobody waits."""

    def __getattr__(self, name: str) -> NoReturn:
        raise of_another_process(self._what, self._maker)


def _leave_to_parent() -> None:
    for made, (what, maker, parts, leave) in _made.items():
        leave(made)
        for part in parts:
            setattr(made, part, _OfParent(getattr(made, part), what, maker))
    _made.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
