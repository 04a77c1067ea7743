"""What the workers of a Pool do, and what they and their pool say to each other.

A task is 1 byte of mode, 4 bytes with the length of the function's pickle, that pickle, and the pickle of its arguments. A
worker keeps the functions that it was sent last, so that one that travels by value is built once. Tensors and arrays of
arguments and results are handles (see reduction.py), unless the processes are CPython's own fresh ones, which have no heap.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import sys
from collections.abc import Callable
from multiprocessing.pool import (  # type: ignore[attr-defined]  # CPython has them, typeshed does not
    ExceptionWithTraceback,
    MaybeEncodingError,
)
from types import BuiltinFunctionType, FunctionType
from typing import Any

from shoal import _core
from shoal.ipc import cloudpickling
from shoal.ipc.pickling import explain, is_of_pickling
from shoal.multiprocessing import by_value, child, main_names, reduction
from shoal.multiprocessing.settings import Settings
from shoal.process.error_report import pack_exception, unpack_exception

__all__ = [
    "APPLY",
    "MAP",
    "STARMAP",
    "Caused",
    "Message",
    "dump_exception",
    "dumps",
    "loads",
    "pack_task",
    "work",
]

APPLY, MAP, STARMAP = range(3)

_HEAD = struct.Struct("=BI")
_KEPT_FUNCTIONS = 16
_KEPT = (FunctionType, BuiltinFunctionType, type, by_value.LruCache)  # others may have a state of their own
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})

loads = pickle.loads
Report = _core.pool.Report
Message = tuple[bytes, list[_core.ipc.Block]]
"""A pickle, and the blocks that it names."""


# --- pickles


def _is_plain(obj: Any) -> bool:
    """Whether pickle knows all of it without asking anybody."""
    kind = type(obj)
    if kind is list or kind is tuple:
        return all(type(part) in _PLAIN for part in obj)
    return kind in _PLAIN


def dumps(obj: Any, name: str = "object", by_handle: bool = True) -> Message:
    """A message for the other side. Lambdas, closures, local classes, and what `__main__` defines travel by value.

    Args:
        by_handle: the bytes of tensors and arrays stay where they are.

    Raises:
        PicklingError: naming the part of `obj`, which the caller calls `name`, that cannot be pickled.
    """
    if _is_plain(obj):
        return pickle.dumps(obj, 5), []
    if by_handle:
        return reduction.dumps(obj, name)
    try:
        return _dump(obj), []
    except Exception as error:
        if child.main_script():
            with contextlib.suppress(Exception), child.pickling_by_reference():
                return _dump(obj, _ByReferencePickler), []
        if not is_of_pickling(error):
            raise
        raise explain(obj, error, _dump, name) from error


class _Pickler(cloudpickling.Pickler):
    """cloudpickle's, for processes without the family's heap, and for exceptions."""

    dispatch_table = reduction.Pickler.dispatch_table

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        return main_names.reduce_class(obj, reduced) if isinstance(obj, type) else reduced


class _ByReferencePickler(_Pickler):
    """Writes what `__main__` defines as its name: those processes run the script."""

    dispatch_table = reduction.ByReferencePickler.dispatch_table

    def reducer_override(self, obj: Any) -> Any:
        return NotImplemented if isinstance(obj, type | FunctionType) else super().reducer_override(obj)


def _dump(obj: Any, pickler: type[_Pickler] = _Pickler) -> bytes:
    with io.BytesIO() as file:
        pickler(file, 5).dump(obj)
        return file.getvalue()


def pack_task(mode: int, function: Message, arguments: Any, by_handle: bool) -> Message:
    """A task; `function` is pickled already."""
    data, blocks = dumps(arguments, "args" if mode == APPLY else "items", by_handle)
    return b"".join((_HEAD.pack(mode, len(function[0])), function[0], data)), function[1] + blocks


class _Functions:
    """Unpickles functions, and keeps the last of them."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}

    def load(self, data: bytes) -> Any:
        function = self._kept.get(data)
        if function is None:
            function = loads(data)
            if isinstance(function, _KEPT):
                if len(self._kept) >= _KEPT_FUNCTIONS:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[data] = function
        return function


class Caused:
    """Pickles an exception together with its cause, which pickle leaves out."""

    def __init__(self, error: BaseException, cause: BaseException) -> None:
        self.error = error
        self.cause = cause

    def __reduce__(self) -> Any:
        return _with_cause, (self.error, dump_exception(self.cause, remote=False))


def _with_cause(error: BaseException, cause: bytes) -> BaseException:
    error.__cause__ = loads(cause)
    return error


def dump_exception(error: BaseException, remote: bool = True) -> bytes:
    """The pickle of an exception as raise will want it in the pool's process: with this traceback as text."""
    what: Any = error
    if remote:
        what = ExceptionWithTraceback(error, error.__traceback__)
    elif error.__cause__ is not None:
        what = Caused(error, error.__cause__)
    try:
        data = _dump(what)
        loads(data)  # some fail only on the way back
        return data
    except Exception:
        return _dump(_Packed(pack_exception(error)))


class _Packed:
    """An exception that does not survive pickling, as what is known of it."""

    def __init__(self, packed: tuple[str, str, str, bytes]) -> None:
        self.packed = packed

    def __reduce__(self) -> Any:
        return _unpacked, self.packed


def _unpacked(kind: str, message: str, text: str, data: bytes) -> BaseException:
    return unpack_exception("a pool's worker", kind, message, text, data, "", 0, -1, [])


# --- the worker


def work(
    segment: Any,
    index: int,
    shelf: Any,
    number: int,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    quota: int,
    settings: Settings,
) -> None:
    """The target of a worker's process."""
    settings.redirect()
    slot = _core.pool.Slot(os.dup(segment.fd), index, shelf)
    try:
        settings.apply(index, number)
        if initializer is not None:
            with main_names.here.initializing(initializer):
                initializer(*initargs)
    except BaseException as error:
        slot.send(Report.CANNOT_BEGIN, 0, dump_exception(error))
        sys.exit(1)
    slot.send(Report.READY, 0, b"")
    functions = _Functions()
    done = 0
    while quota == 0 or done < quota:
        task = slot.next()
        if task is None:
            return
        tag, data = task
        if not _answer(functions, data, slot, tag, shelf is not None):
            return
        del task, data
        done += 1


def _answer(functions: _Functions, data: bytes, slot: Any, tag: int, by_handle: bool) -> bool:
    """Does a task, and sends what comes of it; False when the pool is gone."""
    try:
        value = _call(functions, data)
    except Exception as error:
        return bool(slot.send(Report.RAISED, tag, dump_exception(error)))
    try:
        return bool(slot.send_done(tag, *dumps(value, "result", by_handle)))
    except Exception as error:
        answer = dump_exception(MaybeEncodingError(_Shown(error), _Shown(value)), remote=False)
        return bool(slot.send(Report.RAISED, tag, answer))


class _Shown:
    """Prints as `obj` does; as any object where that raises."""

    def __init__(self, obj: Any) -> None:
        self._obj = obj

    def __repr__(self) -> str:
        try:
            return repr(self._obj)
        except Exception:
            return object.__repr__(self._obj)


def _call(functions: _Functions, data: bytes) -> Any:
    mode, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    function = functions.load(data[_HEAD.size : end])
    arguments = loads(memoryview(data)[end:])
    with main_names.here.running(function):
        if mode == MAP:
            return [function(item) for item in arguments]
        if mode == STARMAP:
            return [function(*items) for items in arguments]
        args, kwds = arguments
        return function(*args, **kwds)
