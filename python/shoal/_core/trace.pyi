"""What processes are busy with, for `shoal trace`."""

from typing import Any

class Capture:
    """Listens to the recorders of processes."""

    def __init__(self) -> None: ...
    def add(self, fd: int) -> bool:
        """
        Listens to this recorder, too. False: it does already, or its process has ended.
        """

    def listen(self, seconds: float) -> bool:
        """Keeps what is recorded for so long. True: there is no room for more."""

    def stop(self) -> None:
        """Listens no longer, and takes the rest."""

    @property
    def listeners(self) -> int:
        """To how many it listens."""

    def processes(self) -> list[Any]:
        """
        Of each its `pid`, `name`, how many events were `lost`, and of the events arrays: `span` (an index of SPANS), `thread`, `arg`, `start_ns`, `duration_ns`.
        """

    def write(self, path: str, origin_ns: int) -> None:
        """
        The timeline as a file for ui.perfetto.dev; times count from `origin_ns`.
        """

SPANS: list[Any] = ...

NAME: str = "shoal trace"

def open(name: str = "") -> None:
    """
    Gives this process a recorder; `name` is what it is called in a timeline.
    """
