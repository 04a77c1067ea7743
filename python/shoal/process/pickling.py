"""Pickles what a worker needs, and says exactly what is in the way when that fails, before any process is started."""

from __future__ import annotations

import pickle
import types
from collections.abc import Iterator
from typing import Any

import cloudpickle

__all__ = ["PicklingError", "dumps", "find_unpicklable"]

_MAX_DEPTH = 12
_MAX_OBJECTS = 20_000


class PicklingError(TypeError, pickle.PicklingError):
    """An object that workers need cannot be pickled. The message names the part that is in the way.

    Attributes:
        path: where that part is, for example "factory.<closure>.config.socket".
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def dumps(obj: Any, name: str = "factory") -> bytes:
    """`obj` as bytes that a worker's `pickle.loads` takes. Lambdas, closures, local classes, and what `__main__` or a
    notebook defines travel by value.

    Args:
        name: what the caller calls the object; the path in an error begins with it.

    Raises:
        PicklingError: naming the innermost part that cannot be pickled, and what to do about it.
    """
    try:
        return cloudpickle.dumps(obj)
    except Exception as error:
        path, part, cause = find_unpicklable(obj, name, error)
        raise PicklingError(_explain(obj, path, part, cause), path) from cause


def find_unpicklable(obj: Any, name: str, error: Exception) -> tuple[str, Any, Exception]:
    """The path of the innermost part of `obj` that cannot be pickled, the part, and what pickling it raises."""
    seen = {id(obj)}
    path, part, cause = name, obj, error
    for _ in range(_MAX_DEPTH):
        found = _failing_part(part, seen)
        if found is None:
            break
        step, part, cause = found
        path += step
    return path, part, cause


def _failing_part(obj: Any, seen: set[int]) -> tuple[str, Any, Exception] | None:
    for step, part in _parts(obj):
        if id(part) in seen or len(seen) > _MAX_OBJECTS:
            continue
        seen.add(id(part))
        try:
            cloudpickle.dumps(part)
        except Exception as error:
            return step, part, error
    return None


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """What pickling `obj` also pickles, with the step from `obj` to it."""
    if isinstance(obj, types.FunctionType):
        yield from _parts_of_function(obj)
    elif isinstance(obj, types.MethodType):
        yield ".__self__", obj.__self__
        yield ".__func__", obj.__func__
    elif isinstance(obj, dict):
        for key, value in obj.items():
            yield f"[{key!r}]", value
            yield f".<key {key!r}>", key
    elif isinstance(obj, list | tuple):
        for i, value in enumerate(obj):
            yield f"[{i}]", value
    elif isinstance(obj, set | frozenset):
        for value in obj:
            yield ".<element>", value
    elif isinstance(obj, type):
        for key, value in vars(obj).items():
            yield f".{key}", value
    else:
        yield from _parts_of_instance(obj)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f".<closure>.{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for i, value in enumerate(function.__defaults__ or ()):
        yield f".<default {i}>", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f".<default {name}>", value
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f".<global>.{name}", function.__globals__[name]
    yield from ((f".{name}", value) for name, value in vars(function).items())


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a nested function
            yield from _global_names(constant)


def _parts_of_instance(obj: Any) -> Iterator[tuple[str, Any]]:
    for attribute in ("func", "args", "keywords"):  # functools.partial
        if type(obj).__name__ == "partial" and hasattr(obj, attribute):
            yield f".{attribute}", getattr(obj, attribute)
    for name, value in getattr(obj, "__dict__", {}).items():
        yield f".{name}", value
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                yield f".{name}", getattr(obj, name)
    if type(obj).__module__ == "__main__" or "<locals>" in type(obj).__qualname__:
        yield ".<class>", type(obj)  # travels by value


def _explain(obj: Any, path: str, part: Any, cause: Exception) -> str:
    text = f"{path}: {_reason(part, cause)}"
    if _looks_like_env(obj):
        return (
            f"{text}. This is an environment; workers need something that makes one, so that each makes its own: pass "
            f"`lambda: {type(obj).__name__}(…)` or the class itself instead of the instance."
        )
    return (
        f"{text}. Workers are other processes and get a copy of it. Make the {type(part).__name__} inside the function "
        "(or on first use, in the worker), or give its class a __reduce__ that says how to make it anew."
    )


def _reason(part: Any, cause: Exception) -> str:
    text = str(cause)
    if "cannot pickle" in text or "Can't pickle" in text or "can't pickle" in text:
        return text
    return f"cannot pickle {type(part).__name__!r} object ({type(cause).__name__}: {text})"


def _looks_like_env(obj: Any) -> bool:
    return not isinstance(obj, type) and all(hasattr(obj, name) for name in ("reset", "step", "observation_space"))
