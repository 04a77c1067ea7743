"""What objects count, for `shoal stat`."""

from collections.abc import Sequence
from typing import Any

class Board:
    """Counters that any process of the user may read."""

    def __init__(self, kind: str, names: Sequence[str]) -> None: ...
    def set(self, index: int, value: int) -> None:
        """The counter with this index in `names`."""

    def set_title(self, title: str) -> None: ...
    def end(self) -> None:
        """What it is for is no more."""

NAME: str = "shoal board"

def read(fd: int) -> dict[Any, Any]:
    """
    A board as it reads now: `kind`, `title`, `pid` and whether that process `runs`, `ended`, `seconds` since it was made, and `counters`.
    """

def observe_workers(fd: int) -> list[Any]:
    """
    The workers of a vector environment, of its segment: `steps`, `busy_ns`, the `env` whose code runs (-1: none), `in_reset`, and for how many `seconds`.
    """

def now_ns() -> int:
    """The clock of times on boards."""
