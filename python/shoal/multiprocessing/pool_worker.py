"""What the workers of a Pool do, and what they and their pool say to each other.

A task is 1 byte of mode, 4 bytes with the length of the function's pickle, that pickle, and the pickle of its arguments. A
worker keeps the functions that it was sent last, so that one that travels by value is built once.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import sys
from collections.abc import Callable
from multiprocessing.pool import ExceptionWithTraceback, MaybeEncodingError
from multiprocessing.reduction import ForkingPickler
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import cloudpickle

from shoal import _core

__all__ = [
    "APPLY",
    "MAP",
    "STARMAP",
    "Caused",
    "WorkerSettings",
    "dump_exception",
    "dumps",
    "loads",
    "pack_task",
    "work",
]

APPLY, MAP, STARMAP = range(3)

_HEAD = struct.Struct("=BI")
_KEPT_FUNCTIONS = 16
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})

loads = pickle.loads
Report = _core.pool.Report


class WorkerSettings(NamedTuple):
    """What a worker sets before its initializer is called.

    Attributes:
        threads: of torch; the variables that other libraries read are there before the process starts.
        seed: of the pool, or None.
        cpus: of each worker in turn; empty: any.
    """

    threads: int | None = None
    seed: int | tuple[int, ...] | None = None
    cpus: tuple[tuple[int, ...], ...] = ()

    def apply(self, seat: int, number: int) -> None:
        """In the `number`-th worker of its pool, which has place `seat` in it."""
        if self.cpus:
            os.sched_setaffinity(0, self.cpus[seat % len(self.cpus)])
        if self.threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self.threads)
        if self.seed is None:
            random.seed()
            if "numpy.random" in sys.modules:  # which `import numpy` leaves out
                sys.modules["numpy.random"].seed()
        else:
            _seed(self.seed, number)


def _seed(entropy: int | tuple[int, ...], number: int) -> None:
    import numpy

    words = numpy.random.SeedSequence(entropy, spawn_key=(number,)).generate_state(16)
    random.seed(words[:8].tobytes())
    numpy.random.seed(words[8:14])
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(words[14]) << 32 | int(words[15]))


# --- pickles


def _is_plain(obj: Any) -> bool:
    """Whether pickle knows all of it without asking anybody."""
    kind = type(obj)
    if kind is list or kind is tuple:
        return all(type(part) in _PLAIN for part in obj)
    return kind in _PLAIN


def dumps(obj: Any, name: str = "object") -> bytes:
    """A pickle for the other side. Lambdas, closures, local classes, and what `__main__` defines travel by value.

    Raises:
        PicklingError: naming the part of `obj`, which the caller calls `name`, that cannot be pickled.
    """
    if _is_plain(obj):
        return pickle.dumps(obj, 5)
    try:
        return _dump(obj)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        from shoal.process.pickling import PicklingError, find_unpicklable

        path, _, cause = find_unpicklable(obj, name, error)
        raise PicklingError(f"{path}: {cause}", path) from cause


def _dump(obj: Any) -> bytes:
    with io.BytesIO() as file:
        pickler = cloudpickle.Pickler(file, 5)
        pickler.dispatch_table = pickler.dispatch_table.new_child(ForkingPickler._extra_reducers)  # type: ignore[attr-defined]
        pickler.dump(obj)
        return file.getvalue()


def pack_task(mode: int, function: bytes, arguments: Any) -> bytes:
    """A task; `function` is a pickle already."""
    name = "args" if mode == APPLY else "items"
    return b"".join((_HEAD.pack(mode, len(function)), function, dumps(arguments, name)))


class _Functions:
    """Unpickles functions, and keeps the last of them."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Any] = {}

    def load(self, data: bytes) -> Any:
        function = self._kept.get(data)
        if function is None:
            function = loads(data)
            if isinstance(function, (FunctionType, BuiltinFunctionType, type)):  # others may have a state of their own
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
        data = dumps(what)
        loads(data)  # some fail only on the way back
        return data
    except Exception:
        from shoal import errors

        return dumps(_Packed(errors.pack_exception(error)))


class _Packed:
    """An exception that does not survive pickling, as what is known of it."""

    def __init__(self, packed: tuple[str, str, str, bytes]) -> None:
        self.packed = packed

    def __reduce__(self) -> Any:
        return _unpacked, self.packed


def _unpacked(kind: str, message: str, text: str, data: bytes) -> BaseException:
    from shoal import errors

    return errors.unpack_exception("a pool's worker", kind, message, text, data, "", 0, -1, [])


# --- the worker


def work(
    board: Any,
    seat: int,
    number: int,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    quota: int,
    settings: WorkerSettings,
    relay: Any,
) -> None:
    """The target of a worker's process."""
    if relay is not None:
        relay.install()
    place = _core.pool.Seat(os.dup(board.fd), seat)
    try:
        settings.apply(seat, number)
        if initializer is not None:
            initializer(*initargs)
    except BaseException as error:
        place.send(Report.CANNOT_BEGIN, 0, dump_exception(error))
        sys.exit(1)
    place.send(Report.READY, 0, b"")
    functions = _Functions()
    done = 0
    while quota == 0 or done < quota:
        task = place.next()
        if task is None:
            return
        tag, data = task
        report, answer = _answer(functions, data)
        del task, data
        if not place.send(report, tag, answer):
            return
        done += 1


def _answer(functions: _Functions, data: bytes) -> tuple[Any, bytes]:
    try:
        value = _call(functions, data)
    except Exception as error:
        return Report.RAISED, dump_exception(error)
    try:
        return Report.DONE, dumps(value, "result")
    except Exception as error:
        return Report.RAISED, dump_exception(MaybeEncodingError(error, value), remote=False)


def _call(functions: _Functions, data: bytes) -> Any:
    mode, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    function = functions.load(data[_HEAD.size : end])
    arguments = loads(memoryview(data)[end:])
    if mode == MAP:
        return [function(item) for item in arguments]
    if mode == STARMAP:
        return [function(*items) for items in arguments]
    args, kwds = arguments
    return function(*args, **kwds)
