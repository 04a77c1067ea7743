import builtins
import enum
from typing import Any

import shoal._core.ipc

class Job:
    """The outcomes of the tasks of one call."""

    def __init__(self) -> None: ...
    def finished(self) -> bool: ...
    def first_failure(self) -> int | None:
        """The task whose failure came first; None while there is none."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for all outcomes; returns whether they are there."""

    def take(
        self, index: int, timeout: float | None = None
    ) -> tuple[int, bool, bytes, shoal._core.ipc.Block | None] | None:
        """
        (index, whether it returned, pickle, what holds the blocks that it names), once; None when there is no such task.
        """

    def take_any(self, timeout: float | None = None) -> tuple[int, bool, bytes, shoal._core.ipc.Block | None] | None:
        """As take(), of the outcome that came first."""

class EventKind(enum.Enum):
    DIED = 0

    BROKEN = 1

    NOTIFY = 2

    FINISHED = 3

    NOTHING = 4

class Event:
    """What the pool's owner has to look after."""

    @property
    def kind(self) -> EventKind: ...
    @property
    def slot(self) -> int: ...
    @property
    def ready(self) -> bool:
        """DIED: it had begun to work."""

    @property
    def retired(self) -> bool:
        """DIED: it was to leave."""

    @property
    def blamed(self) -> bool:
        """DIED: it had begun a task that has no outcome."""

    @property
    def ticket(self) -> int: ...
    @property
    def bytes(self) -> builtins.bytes: ...

class Scheduler:
    """Which task goes to which worker, and what is outstanding."""

    def __init__(self, slots: int, ring_bytes: int = 262144) -> None: ...
    @property
    def segment_fd(self) -> int: ...
    def prepare(self, slot: int, quota: int) -> None:
        """
        Before a worker is started; quota: tasks that it may do, 0 for any number.
        """

    def occupy(self, slot: int, pid: int) -> None:
        """After it was started."""

    def shelf(self, slot: int) -> shoal._core.ipc.Block:
        """Where its worker keeps results that name blocks until they arrive."""

    def vacate(self, slot: int) -> None:
        """It could not be started."""

    def open(self, job: Job) -> None: ...
    def add(self, job: Job, index: int, payload: bytes, blocks: list[Any] = []) -> bool:
        """`blocks`: those that the payload names. False: the pool was stopped."""

    def put(self, job: Job, index: int, ok: bool, payload: bytes) -> None:
        """The outcome of a task that is not sent."""

    def seal(self, job: Job, length: int, ticket: int = 0) -> None:
        """No more tasks; with a ticket there is a NOTIFY once all are done."""

    def wait_for_room(self, bytes: int) -> None:
        """Waits until tasks that no worker was given have at most so many bytes."""

    def pump(self, timeout: float | None = None) -> Event:
        """Keeps the pool going until there is an event."""

    def bury(self, slot: int, error: bytes) -> bool:
        """
        After DIED: the outcome of the task that it had begun; returns whether another worker is wanted.
        """

    def close(self) -> None: ...
    def stop(self, error: bytes) -> None:
        """What has no outcome gets this one."""

class Slot:
    """A worker's end."""

    def __init__(self, fd: int, index: int, shelf: shoal._core.ipc.Block | None = None) -> None:
        """Takes over the descriptor of the segment."""

    def next(self) -> tuple[int, bytes] | None:
        """(tag, pickle) of the next task, which has begun; None: leave."""

    def send(self, report: Report, tag: int, payload: bytes) -> bool:
        """False: the pool is gone."""

    def send_done(self, tag: int, payload: bytes, blocks: list[Any]) -> bool:
        """
        What a task returned, and the blocks that its pickle names; False: the pool is gone.
        """

class Report(enum.Enum):
    READY = 1

    DONE = 2

    RAISED = 3

    CANNOT_BEGIN = 4
