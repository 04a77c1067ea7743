"""The exceptions that Shoal raises, and how a worker's exception becomes one of the caller's."""

from __future__ import annotations

import pickle
import traceback
from typing import Any, NamedTuple

__all__ = [
    "Cancelled",
    "DeadlineExceeded",
    "Error",
    "ForkRefused",
    "ModelError",
    "OverCapacity",
    "OwnerDied",
    "RemoteError",
    "RemoteTraceback",
    "ServiceDied",
    "SpacesDiffer",
    "StartFailed",
    "TooManyFaults",
    "WorkerDied",
]


_CLUES = "_shoal_clues"
"""The attribute of a worker's exception that says what it did not find; gone before the caller sees it."""


class Error(RuntimeError):
    """Base of Shoal's own exceptions. Where Python has a fitting one (ValueError, TimeoutError), that is raised."""


class WorkerDied(Error):
    """A worker process ended while it was needed.

    Attributes:
        worker: its name, for example "worker 3".
        index: its position among the workers, or -1.
        env_indices: the environments it had.
        pid: its process id.
        exitcode: as in `multiprocessing`: the exit code, or minus the number of the signal that killed it; None when
            unknown: it ended with its zygote, which the message names, or somebody else collected its status.
        log_tail: the last lines it wrote, oldest first.
        kind: as `shoal.Fault.kind`: "killed", "exit", "hang" (the message then has its Python stack) or "memory".
    """

    def __init__(
        self,
        message: str,
        *,
        worker: str = "",
        index: int = -1,
        env_indices: range = range(0),
        pid: int = -1,
        exitcode: int | None = None,
        log_tail: tuple[str, ...] = (),
        kind: str = "killed",
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.index = index
        self.env_indices = env_indices
        self.pid = pid
        self.exitcode = exitcode
        self.log_tail = log_tail
        self.kind = kind


class OwnerDied(Error):
    """A process was killed while it held what the caller waited for; what that protects may be half done.

    Attributes:
        pid: its process id; -1 where it is not known any more.
    """

    def __init__(self, message: str, *, pid: int = -1) -> None:
        super().__init__(message)
        self.pid = pid


class TooManyFaults(Error):
    """More faults than the FaultPolicy forgives, or no environment left; the message tells of each, with its cause.

    Attributes:
        faults: the `shoal.Fault`s, oldest first: at most the last 64 of those that counted.
    """

    def __init__(self, message: str, *, faults: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults


class OverCapacity(Error):
    """A model service has no room for a row now, and the caller did not want to wait for it; or more rows were asked about
    at once than may be in flight."""


class DeadlineExceeded(Error, TimeoutError):
    """The deadline of a request to a model passed before there was a reply."""


class Cancelled(Error):
    """A request to a model was cancelled, or its result has been taken already."""


class ModelError(Error):
    """A model failed on this row (the others of its batch have their replies), or refuses rows like it.

    Attributes:
        traceback: of the model's exception, as Python prints it; may be empty.
    """

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class ServiceDied(Error):
    """A model service has ended, or was closed; the message says how. Requests under way have no reply."""


class SpacesDiffer(ValueError):
    """Environments that were to be stepped together have different spaces; the message shows two of them."""


class StartFailed(Error):
    """No worker could be started: the zygote or a worker failed before it ran anything of the caller's."""


class ForkRefused(Error):
    """`fork` was asked for where it is known to break; the message names the causes and the way out."""


class RemoteError(Error):
    """An exception of a worker that could not be brought over as it was; the message has its type and text."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in a worker: carries the worker's traceback as text.

    Attributes:
        traceback: as Python prints it.
        env_index: the environment that raised it, or -1.
        others: the exceptions of other workers in the same call.
    """

    def __init__(
        self, text: str, traceback: str = "", env_index: int = -1, others: tuple[BaseException, ...] = ()
    ) -> None:
        super().__init__(text)
        self.text = text
        self.traceback = traceback
        self.env_index = env_index
        self.others = others

    def __str__(self) -> str:
        return self.text


def pack_exception(exception: BaseException) -> tuple[str, str, str, bytes]:
    """Type name, message, formatted traceback, and the pickled exception (empty where it does not survive pickling)."""
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(exception)
    except Exception as error:  # an environment's own __str__ may fail
        message = f"<str() of the exception raised {type(error).__name__}>"
    text = "".join(traceback.format_exception(exception))
    _leave_clues(exception)
    return name, message, text, _pickled(exception)


def _leave_clues(exception: BaseException) -> None:
    from shoal.identity.clues import clue_of

    try:
        if clues := clue_of(exception):
            exception.__dict__[_CLUES] = clues
    except Exception:  # looking must not hide what it looks at
        pass


def _follow_clues(exception: BaseException) -> str | None:
    from shoal.identity.clues import explain

    try:
        return explain(exception.__dict__.pop(_CLUES, []))
    except Exception:
        return None


def _pickled(exception: BaseException) -> bytes:
    """The exception itself, or a recipe that makes it without calling its constructor (which may want other arguments
    than `exception.args`); empty where neither gives the same exception again."""
    import cloudpickle

    recipe = _Recipe(type(exception), exception.args, getattr(exception, "__dict__", {}))
    for candidate in (exception, recipe):
        try:
            data = cloudpickle.dumps(candidate)
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
    hint = _follow_clues(exception)
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
