"""Whether this process imports modules on behalf of its parent: then it must not start processes of its own.

A module that starts workers at its top level, and whose classes those workers need, is imported by them, starts workers
again, and so on without end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from shoal.process._nested import refuse_where_forbidden

__all__ = ["importing", "refuse_to_start"]

_what: list[str] = []


@contextmanager
def importing(what: str) -> Iterator[None]:
    """For the block that imports; `what` completes "while …"."""
    _what.append(what)
    try:
        yield
    finally:
        _what.pop()


def refuse_to_start() -> None:
    """Raises RuntimeError inside a block of importing(), PermissionError in a worker that may start no processes."""
    refuse_where_forbidden()
    if _what:
        raise RuntimeError(
            f"worker processes were about to be started while {_what[-1]}: {_importing_line()} starts workers when it is "
            "imported, so that every worker would start workers again. Put what starts them under "
            '`if __name__ == "__main__":`, or in a function that only the main program calls'
        )


def _importing_line() -> str:
    """The line at the top level of a module that the calling code comes from."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return f"the module {frame.f_globals.get('__name__')} ({frame.f_code.co_filename}, line {frame.f_lineno})"
        frame = frame.f_back
    return "a module that it needs"
