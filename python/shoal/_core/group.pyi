"""Ranks that learn together."""

from collections.abc import Callable
from typing import Any

class Launch:
    """Who started this process, and as which of several."""

    @staticmethod
    def detect() -> Launch:
        """By the environment's variables; rank 0 of 1 where no launcher did."""

    @staticmethod
    def local(rank: int, size: int, attempt: str) -> Launch:
        """One of `size` processes of this host."""

    @property
    def launcher(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def attempt(self) -> str: ...
    @property
    def address(self) -> str: ...

class Group:
    """
    Processes that work as one. All call the same methods in the same order.
    """

    @staticmethod
    def join(launch: Launch, timeout: float = 300.0, look: Callable[..., Any] | None = None) -> Group:
        """
        Waits until all ranks are there; what `look` raises, which is called meanwhile, ends the wait.
        """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def launch(self) -> Launch: ...
    @property
    def members(self) -> list[Any]:
        """By rank: rank, host and process id."""

    def broadcast(self, mine: bytes) -> bytes:
        """What rank 0 has."""

    def sum(self, values: Any) -> None:
        """
        Each element becomes the sum over all ranks, the same bits on each: float32, [n], in place.
        """

    def barrier(self) -> None:
        """Returns when all ranks have come."""

    def leave(self) -> None:
        """The others' calls that still need this rank raise PeerLost."""

    def fail(self, why: str) -> None:
        """Tells the others that this rank fails, and how."""
