"""How a worker's exception becomes one of the caller's: called from C++, on both sides of its error report."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import RemoteError, RemoteTraceback, SpacesDiffer
from shoal.identity.missing_names import explain, missing_names_of
from shoal.process._forked_child import end_forked_child

__all__ = ["first_line", "pack_exception", "traceback_of", "unpack_exception"]

_MISSING_NAMES = "_shoal_missing_names"
"""The attribute of a worker's exception that says what it did not find; gone before the caller sees it."""
_CALLERS = tuple(f"{Path(__file__).parent.parent / name}{os.sep}" for name in ("cli", "collect", "learn", "vector"))
"""Where the files lie whose functions call environments."""


def first_line(error: BaseException) -> str:
    """What it says first; its type where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def traceback_of(error: BaseException) -> str | None:
    """Where the code of an environment raised it, from that code's frames on, with what is known of the environment. None: no
    environment did, or there is no telling in this process before Python 3.11."""
    if isinstance(error.__cause__, RemoteTraceback):
        return str(error.__cause__).strip()
    if not any(str(note).startswith("environment ") for note in getattr(error, "__notes__", ())):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    callers = [at for at, (frame, _) in enumerate(frames) if frame.f_code.co_filename.startswith(_CALLERS)]
    trace = error.__traceback__
    for _ in range(callers[-1] + 1 if callers else 0):
        trace = trace and trace.tb_next
    return None if trace is None else "".join(traceback.format_exception(type(error), error, trace)).strip()


def pack_exception(exception: BaseException) -> tuple[str, str, str, bytes]:
    """Type name, message, formatted traceback, and the pickled exception (empty where it does not survive pickling).

    Does not return in a child that a worker's code has forked.
    """
    end_forked_child(exception)
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(exception)
    except Exception as error:  # an environment's own __str__ may fail
        message = f"<str() of the exception raised {type(error).__name__}>"
    text = "".join(traceback.format_exception(exception))
    _attach_missing_names(exception)
    return name, message, text, _pickled(exception)


def _attach_missing_names(exception: BaseException) -> None:
    try:
        if missing := missing_names_of(exception):
            exception.__dict__[_MISSING_NAMES] = missing
    except Exception:  # looking must not hide what it looks at
        pass


def _explain_missing_names(exception: BaseException) -> str | None:
    try:
        return explain(exception.__dict__.pop(_MISSING_NAMES, []))
    except Exception:
        return None


def _explain_hidden_gpus(exception: BaseException, message: str, where: str) -> str | None:
    """What torch cannot know: environments' workers are shown no GPU unless their options say so."""
    places = [where, *getattr(exception, "__notes__", ())]
    if "No CUDA GPUs are available" not in message or not any(
        str(place).startswith("environment ") for place in places
    ):
        return None
    return (
        "Workers of environments see no GPU, unless worker=shoal.WorkerOptions(gpu='own') shows them those of the program. "
        "One model on the GPU for all of them is a shoal.ModelService(…, device='cuda')."
    )


def _pickled(exception: BaseException) -> bytes:
    """The exception itself, or a recipe that makes it without calling its constructor (which may want other arguments
    than `exception.args`); empty where neither gives the same exception again."""
    from shoal.ipc import cloudpickling

    recipe = _Recipe(type(exception), exception.args, getattr(exception, "__dict__", {}))
    for candidate in (exception, recipe):
        try:
            data: bytes = cloudpickling.dumps(candidate)
            copy = pickle.loads(data)  # some only fail on the way back
            copy = copy.make() if isinstance(copy, _Recipe) else copy
            if type(copy) is type(exception) and str(copy) == str(exception):
                return data
        except Exception:
            continue
    return b""


class _Recipe(NamedTuple):
    kind: type[BaseException]
    args: tuple[Any, ...]
    state: dict[str, Any]

    def make(self) -> BaseException:
        exception = self.kind.__new__(self.kind, *self.args)
        exception.__dict__.update(self.state)
        return exception


def unpack_exception(
    worker: str,
    kind: str,
    message: str,
    text: str,
    data: bytes,
    where: str,
    code: int,
    env_index: int,
    others: list[BaseException],
) -> BaseException:
    """The exception to raise in the caller's process for one that `worker` reported."""
    exception: BaseException | None = None
    if data:
        try:
            exception = pickle.loads(data)
            exception = exception.make() if isinstance(exception, _Recipe) else exception
        except Exception:  # its class may exist in the worker only
            exception = None
    if not isinstance(exception, Exception):  # one that ends the worker's program is not to end the caller's
        exception = _like(kind, message, code)
    if where and hasattr(exception, "add_note") and not getattr(exception, "__notes__", ()):
        exception.add_note(where)
    hint = _explain_missing_names(exception) or _explain_hidden_gpus(exception, message, where)
    if hint is not None:
        if hasattr(exception, "add_note"):
            exception.add_note(hint)
        text = f"{text}\n{hint}\n"
    place = f"{worker}, {where}" if where else worker
    cause = f"\n\nTraceback of {place}:\n{text}" if text else f"\n\nin {place}"
    exception.__cause__ = RemoteTraceback(cause, text, env_index, tuple(others))
    return exception


def _like(kind: str, message: str, code: int) -> BaseException:
    """What stands for an exception that only exists as text: the C++ kinds become what they are in this process."""
    if kind == "shoal::vector::SpacesDiffer":
        return SpacesDiffer(message)
    if kind == "shoal::InvalidArgument":
        return ValueError(message)
    if kind == "shoal::TimedOut":
        return TimeoutError(message)
    if kind == "OSError":
        return OSError(code, message)
    return RemoteError(f"{kind}: {message}" if message else kind)
