"""The start method that `shoal.multiprocessing.set_start_method()` fixes, in this process and in those it starts."""

from __future__ import annotations

__all__ = ["DefaultMethod", "here"]


class DefaultMethod:
    """A choice, and who has made it.

    Attributes:
        name: "forkserver", "spawn" or "fork"; None: nobody has fixed one.
        fixed: by whom, in words.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.fixed = ""

    def fix(self, name: str | None, fixed: str = "by the process that started this one") -> None:
        self.name, self.fixed = name, fixed


here = DefaultMethod()
"""Of this process."""
