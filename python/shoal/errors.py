"""The exceptions that Shoal raises."""

from __future__ import annotations

import signal
from typing import Any

__all__ = [
    "Cancelled",
    "ConnectionLost",
    "DeadlineExceeded",
    "Error",
    "ForkRefused",
    "ModelError",
    "OverCapacity",
    "OwnerDied",
    "PeerLost",
    "RemoteError",
    "RemoteTraceback",
    "ServiceDied",
    "SpacesDiffer",
    "StartFailed",
    "TooManyFaults",
    "WorkerDied",
]


class Error(RuntimeError):
    """Base of Shoal's own exceptions. Where Python has a fitting one (ValueError, TimeoutError), that is raised."""


_OF_SIGKILL = "SIGKILL that nobody sent is mostly the kernel's, where memory is short: dmesg tells."
_OF_ENVIRONMENTS = "Fewer workers take less, shoal.WorkerOptions(memory_limit=…) is a bound, and on_fault='restart' goes on without a stop"
_OF_OTHERS = "Fewer processes take less"
_PAGE = 'the guide\'s page "Errors", WorkerDied.'


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
        remedy: how to go on, the last line of the message; None: by on_fault=, which what has environments takes.
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
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.worker = worker
        self.index = index
        self.env_indices = env_indices
        self.pid = pid
        self.exitcode = exitcode
        self.log_tail = log_tail
        self.kind = kind
        self.remedy = remedy

    def __str__(self) -> str:
        lines = [super().__str__()]
        if self.exitcode == -signal.SIGKILL and self.kind == "killed":
            fewer = _OF_ENVIRONMENTS if self.env_indices and self.remedy is None else _OF_OTHERS
            lines.append(f"{_OF_SIGKILL} {fewer}: {_PAGE}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines)


class OwnerDied(Error):
    """A process was killed while it held what the caller waited for; what that protects may be half done.

    Attributes:
        pid: its process id; -1 where it is not known any more.
    """

    def __init__(self, message: str, *, pid: int = -1) -> None:
        super().__init__(message)
        self.pid = pid


class PeerLost(Error):
    """A rank of a group was killed, does not answer, failed, or has left it; what the group was at cannot go on.

    Attributes:
        rank: which one.
        host: the name of its machine.
        pid: its process id there.
    """

    def __init__(self, message: str, *, rank: int = -1, host: str = "", pid: int = -1) -> None:
        super().__init__(message)
        self.rank = rank
        self.host = host
        self.pid = pid


class ConnectionLost(Error, ConnectionError):
    """The process at the other end of a connection was killed, was stopped, or cannot be reached any more: the learner of a
    collector on another host.

    Attributes:
        host: the name of its machine.
        pid: its process id there.
    """

    def __init__(self, message: str, *, host: str = "", pid: int = -1) -> None:
        super().__init__(message)
        self.host = host
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
