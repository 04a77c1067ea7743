"""What a call says of an argument that there is not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

__all__ = ["hint", "named_when_unknown", "no_such_argument"]

_T = TypeVar("_T")


def hint(name: str, known: Iterable[str]) -> str:
    """ ". Did you mean 'x'?", the end of an error's text; empty where none of `known` is near."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f". Did you mean {near[0]!r}?" if near else ""


def no_such_argument(callee: str, name: str, known: Iterable[str]) -> TypeError:
    known = list(known)
    return TypeError(f"{callee}() has no argument {name!r}{hint(name, known) or '; there are ' + ', '.join(known)}")


def named_when_unknown(kind: type[_T]) -> type[_T]:
    """A class, dataclasses as well, whose `__init__` says of an unknown keyword argument which is near."""
    made = kind.__init__
    known = dict.fromkeys(list(inspect.signature(made).parameters)[1:])

    @functools.wraps(made)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.keys() <= known.keys():
            raise no_such_argument(kind.__name__, next(name for name in kwargs if name not in known), known)
        made(self, *args, **kwargs)

    kind.__init__ = __init__  # type: ignore[method-assign]  # it takes what the class's own takes
    return kind
