"""A descriptor among the arguments of a new process."""

from __future__ import annotations

from multiprocessing.reduction import DupFd
from typing import Any

__all__ = ["Descriptor"]


class Descriptor:
    """Names a descriptor of this process; pickled for a new process, it names that process's own copy.

    Attributes:
        fd: borrowed where the object was made; owned by the new process.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _here, (DupFd(self.fd),)


def _here(sent: Any) -> Descriptor:
    return Descriptor(sent.detach())
