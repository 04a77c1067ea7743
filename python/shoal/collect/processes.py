"""Collectors in processes of their own, as their caller sees them: who runs, what is due, what becomes of the dead."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import shoal.process
from shoal import _core
from shoal.collect import worker
from shoal.collect.station import Setup, snapshots_of
from shoal.collect.weights import Layout
from shoal.errors import StartFailed, TooManyFaults, WorkerDied
from shoal.ipc.pickling import dumps
from shoal.ipc.sharing import Parcel, leave_fd
from shoal.process.error_report import first_line, pack_exception, unpack_exception
from shoal.vector.factories import Recipe
from shoal.vector.faults import Backoff, FaultPolicy
from shoal.vector.options import WorkerOptions
from shoal.vector.preparation import prepare
from shoal.vector.processes import with_guessed_preload
from shoal.vector.snapshots import tell_end_of

__all__ = ["Due", "Processes"]

_SLICE = 0.1
"""Seconds between two looks at who lives."""
_GRACE = 5.0
"""Seconds for the collectors to end by themselves once they are told to, before they are killed."""
_SEEDS = 2**31
_CLOSED = "closed"


@dataclass
class Due:
    """An order that has no report yet.

    Attributes:
        order: what was sent; a tuple of shoal.collect.worker.
        keeps: what must live until it is reported: the experience.
        rows: of environments, that it asks for.
        is_sent: to the process that is in the place now. Once more does no harm: a collector takes an order once.
    """

    place: int
    order: Any
    keeps: Any = None
    rows: int = 0
    is_sent: bool = False


class Processes:
    """`len(setups)` collectors, each a process.

    Attributes:
        hello: what the first one said of itself.
        lost: rows that were made and lost with their process.
        restarts: of processes.
        episodes: by collector, the least number that the next episodes of its environments may have.
        is_ending: what waits for a collector ends with a RuntimeError.

    Threads: one at a time; share(), and what sets is_ending, come from any.

    Signals: a handler that raises, as that of Ctrl-C, may end any call here anywhere, and the next call goes on from what it left.
    Python runs handlers where a call begins or has ended and where a loop goes round. So what belongs together is assigned
    in a row, without a call between.
    """

    def __init__(
        self,
        setups: Sequence[Setup],
        recipe: Recipe,
        *,
        context: str,
        options: WorkerOptions,
        policy_of_faults: FaultPolicy,
        timeout: float | None,
    ) -> None:
        self._setups = list(setups)
        policy = self._policy = policy_of_faults
        self._timeout = policy.step_timeout if timeout is None else timeout
        self._start_timeout = options.start_timeout if policy.start_timeout is None else policy.start_timeout
        self._parcel = Parcel()
        self._due: dict[int, Due] = {}
        self._forgotten: dict[int, Due] = {}  # whose reports nobody wants; what they keep is still written to
        self._unread: deque[bytes] = deque()  # reports
        self._arrived: deque[tuple[worker.Report, Due]] = deque()
        self._looked = time.monotonic()
        self._numbers = 0
        self._broken: str | None = None
        self._faults: deque[tuple[float, str]] = deque(maxlen=64)
        self._backoffs = [Backoff(policy) for _ in setups]
        self._again_at: dict[int, float] = {}  # places whose next process is to be started then
        self._begun = False
        self._weights: Any = None  # the order that tells of the store
        self._told: list[Any] = [None] * len(setups)  # by collector: the last of these that it was sent
        self.is_ending = False
        self.lost = 0
        self._known = [0] * len(setups)  # rows that were reported or are lost
        self.restarts = [0] * len(setups)
        self._generations = [0] * len(setups)  # processes that there were in each place
        self.episodes = [np.zeros(setup.count, np.int64) for setup in setups]
        self._waiting: list[deque[tuple[int, bytes]]] = [deque() for _ in setups]  # by collector: see _tell()
        self._dropped: list[list[bytes]] = [[] for _ in setups]  # by collector: copies that no state names any more
        self._board = _core.collect.ProgressBoard.create(len(setups))
        self._reports = _core.ipc.Queue()
        _core.ipc.open_broker()
        self._packed = [_pack(setup, self._parcel, gpu=options.gpu != "none") for setup in setups]
        self._preparation = prepare(options.config, None, None, context, options, self._parcel)
        self._workers: list[Any] = [None] * len(setups)
        self._seen: list[tuple[int, float]] = [(0, 0.0)] * len(setups)

        def start_with(preload: Sequence[str]) -> worker.Hello:
            self._launcher = shoal.process.launcher(
                context, preload=[worker.__name__, *preload], **options.for_launcher
            )
            return self._start(range(len(setups)))

        try:
            self.hello = with_guessed_preload(recipe, context, options, start_with)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._setups)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._workers if process is not None]

    def rows_made(self) -> list[int]:
        """By each collector since the start, those under way included."""
        return [self._board.rows(place) for place in range(len(self))]

    def due(self, place: int) -> int:
        """Orders that this collector has."""
        return sum(due.place == place for due in self.all_due)

    @property
    def all_due(self) -> list[Due]:
        """What is ordered and nobody has got the report of."""
        return [*self._due.values(), *(due for _, due in self._arrived.copy())]

    def orders_of(self, keeps: Any) -> dict[int, int]:
        """The numbers of the orders that keep this, by collector."""
        return {due.place: due.order.number for due in self.all_due if due.keeps is keeps}

    @property
    def due_rows(self) -> int:
        """That are ordered, likewise."""
        return sum(due.rows for due in self.all_due)

    # Orders and reports

    def order(self, place: int, kind: type[Any], *arguments: Any, keeps: Any = None, rows: int = 0) -> int:
        """Sends an order; returns its number.

        Args:
            arguments: of `kind`, after its number.
        """
        self._require_whole()
        number = self._numbers = self._numbers + 1
        due = Due(place, kind(number, *arguments), keeps, rows)
        self._due[number] = due
        self._send_due()
        return number

    def next_report(self) -> tuple[worker.Report, Due]:
        """The report that comes next, of whatever collector.

        Raises:
            WorkerDied, TimeoutError, TooManyFaults, and what environments and policy raise: once a collector has ended, as
                the fault policy says.
        """
        self._require_whole()
        self._send_due()
        while True:
            self._check_end()
            if not self._arrived and not self._unread:
                self._reports.poll(self._slice())
            self._take_in()
            if time.monotonic() - self._looked >= _SLICE or not self._arrived:
                self._look_after()
            if self._arrived:
                report, due = self._arrived[0]
                del self._arrived[0]
                return report, due

    def reports(self, numbers: Sequence[int]) -> list[worker.Report]:
        """Those of these orders, in their order; no others are due. Where it is left early, by Ctrl-C, they are not wanted
        any more.

        Raises:
            What next_report() raises, and what the first of these orders has raised that could not be carried out.
        """
        found: dict[int, worker.Report] = {}
        try:
            while any(number not in found for number in numbers):
                report, _ = self.next_report()
                found[report.number] = report
        except BaseException:
            self._forget()
            raise
        for report in [found[number] for number in numbers]:
            if report.failure is not None:
                raise unpack_exception(f"collector {report.place}", *report.failure, "", 0, -1, [])
        return [found[number] for number in numbers]

    def stop(self, numbers: Sequence[int]) -> None:
        """These orders end after the step that is under way."""
        for number in numbers:
            if number in self._due:
                self._board.stop(self._due[number].place, number)

    def _forget(self) -> None:
        """Nothing that is due is wanted any more: it ends early, its reports are dropped."""
        self.lost += sum(report.rows for report, _ in self._arrived)
        for waiting in self._waiting:
            unsent = [number for number, _ in waiting if self._due.pop(number, None) is not None]
            kept = [entry for entry in waiting if entry[0] not in unsent]
            waiting.clear()
            waiting.extend(kept)
        for place, process in enumerate(self._workers):
            numbers = [number for number, due in self._due.items() if due.place == place]
            if numbers and process is not None and process.is_alive:
                self._board.stop(place, max(numbers))
        self._forgotten |= self._due
        self._due.clear()
        self._arrived.clear()

    def _lose(self, place: int) -> None:
        """What a process that has ended made and did not report."""
        self._forgotten = {number: due for number, due in self._forgotten.items() if due.place != place}
        made = self._board.rows(place)
        self.lost += made - self._known[place]
        self._known[place] = made

    def recover(self) -> None:
        """Starts those anew that have ended, after a failure, so that they can be reset."""
        self._require_open()
        self._take_in()
        self._forget()
        gone = [place for place, process in enumerate(self._workers) if process is None or not process.is_alive]
        self._again_at.clear()
        if gone:
            self._broken = "it has not been started again"
            _core.ipc.sweep()
            for place in gone:
                self._lose(place)
            self._start(gone)
        self._broken = None

    def require_reset(self, error: BaseException) -> None:
        """The collectors are left in the middle of something by this error."""
        if self._broken is None:
            self._broken = first_line(error)

    # Weights

    def share(self, store: _core.collect.WeightStore, base: int) -> None:
        """From their next orders on the collectors take their weights from this store, whose first version is `base` + 1."""
        blocks: list[Any] = []
        order = worker.Weights(0, leave_fd(store.fd, blocks), base)
        self._weights = order, blocks

    def share_no_more(self) -> None:
        """Collectors whose state is loaded from now on have the weights of that state, until others are shared."""
        self._weights = None

    @property
    def layout(self) -> Layout | None:
        return self.hello.layout

    def begin(self, begun: bool = True) -> None:
        """The environments have been reset once: whoever takes a dead one's place resets its own."""
        self._begun = begun

    @property
    def is_ready(self) -> bool:
        """Whether orders to collect can be given."""
        return self._begun and self._broken is None

    def close(self) -> None:
        """Ends the processes."""
        self._broken = _CLOSED
        running = [process for process in self._workers if process is not None and process.is_alive]
        for place in range(len(self)):
            self._board.stop(place, self._numbers)
            self._waiting[place].clear()
        deadline = time.monotonic() + _GRACE
        full = [process for process in running if not self._end(process, 0.0)]
        for process in full:
            self._end(process, max(0.0, deadline - time.monotonic()))
        for process in running:
            if not process.join(max(0.0, deadline - time.monotonic())):
                process.kill()
        for process in running:
            process.join()
        self._workers = [None] * len(self._setups)
        for kept in (self._due, self._forgotten, self._unread, self._arrived):
            kept.clear()
        if running:
            _core.ipc.sweep()

    # Inside

    def _take_in(self) -> None:
        """What has been reported by now."""
        self._reports.take_all_bytes(self._unread)
        while self._unread:
            report: worker.Report = pickle.loads(self._unread[0])
            if report.state is not None:
                report = self._with_state(report)
            place, number = report.place, report.number
            episodes = self.episodes[place] if report.episodes is None else report.episodes + 1
            due = self._due.get(number)
            arrived = deque(self._arrived)
            if due is not None:
                arrived.append((report, due))
            # In a row, see Signals.
            self._known[place] += report.rows
            self.episodes[place] = episodes
            self._arrived = arrived
            if due is None:
                self.lost += report.rows
            else:
                del self._due[number]
            del self._unread[0]
            self._forgotten.pop(number, None)
            self._send_on(place)

    def _with_state(self, report: worker.Report) -> worker.Report:
        """With its state unpickled, and held by the collector for as long as it is held here."""
        try:
            state = pickle.loads(report.state)
        except Exception as error:
            return report._replace(state=None, failure=pack_exception(error))
        for snapshot in snapshots_of(state):
            tell_end_of(snapshot, self._dropped[report.place])
        return report._replace(state=state)

    def _require_open(self) -> None:
        if self._broken == _CLOSED:
            raise RuntimeError("this collector is closed")

    def _check_end(self) -> None:
        if self.is_ending:
            raise RuntimeError("this collector is being closed")

    def _require_whole(self) -> None:
        self._require_open()
        if self._broken is not None:
            raise RuntimeError(f"a collector has failed ({self._broken}): call reset() first")

    def _slice(self) -> float:
        now = time.monotonic()
        return min([_SLICE, *(max(0.001, at - now) for at in self._again_at.values())])

    def _tell(self, place: int, message: Any) -> None:
        """Sends it, after all that was told before. There is room for a few messages that a collector has not read. Others
        wait here, with their numbers, until it reports, or until _look_after() looks."""
        self._waiting[place].append((message.number, pickle.dumps(message)))
        self._send_on(place)

    def _tell_of_weights(self, place: int) -> None:
        """Where the newest are, if it does not know."""
        weights = self._weights
        if weights is not None and self._told[place] is not weights:
            self._tell(place, weights[0])
            self._told[place] = weights

    def _send_on(self, place: int) -> None:
        """What is told to one that has just ended is lost with it: _look_after() sees to the end."""
        waiting = self._waiting[place]
        while waiting:
            try:
                self._workers[place].send(waiting[0][1], 0.0)
            except TimeoutError:
                return
            except ConnectionError:
                waiting.clear()
                return
            waiting.popleft()

    @staticmethod
    def _end(process: Any, seconds: float) -> bool:
        """Tells it to end; returns whether it has been told, or has ended."""
        try:
            process.send(pickle.dumps(worker.End()), seconds)
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def _send_due(self) -> None:
        """What is due and was not sent: it is new, a signal came before, or it went to a process that has ended."""
        for due in [due for due in self._due.values() if not due.is_sent and due.place not in self._again_at]:
            self._send(due)

    def _send(self, due: Due) -> None:
        self._seen[due.place] = self._board.signs(due.place), time.monotonic()
        dropped = self._dropped[due.place]
        if copies := dropped[:]:
            self._tell(due.place, worker.Forget(0, copies))
            del dropped[: len(copies)]
        self._tell_of_weights(due.place)
        self._tell(due.place, due.order)
        due.is_sent = True

    def _start(self, places: Sequence[int]) -> worker.Hello:
        """Starts the processes of these places side by side; returns what the first of them says. All of them are there, or
        none."""
        for place in places:
            self._generations[place] += 1
            self._waiting[place].clear()
        connections = [
            worker.Connection(
                place,
                self._generations[place],
                _core.ipc.heap_id(),
                (self._board.block.offset, self._board.block.serial),
                (self._reports.block.offset, self._reports.block.serial),
            )
            for place in places
        ]
        calls = [
            (worker.run, self._packed[place], self._preparation, connection)
            for place, connection in zip(places, connections, strict=True)
        ]
        try:
            for place, process in zip(places, self._launcher.start(calls, "collector", places), strict=True):
                self._workers[place] = process
            deadline = time.monotonic() + self._start_timeout
            hellos = [self._hello(place, deadline) for place in places]
            for place in places:
                self._told[place] = None
                self._tell_of_weights(place)
        except BaseException:
            begun = [process for place in places if (process := self._workers[place]) is not None]
            for process in begun:
                process.kill()
            for process in begun:
                process.join()
            raise
        return hellos[0]

    def _hello(self, place: int, deadline: float) -> worker.Hello:
        process = self._workers[place]
        while True:
            self._check_end()
            try:
                message = process.recv(min(_SLICE, max(0.0, deadline - time.monotonic())))
                break
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise StartFailed(
                        f"collector {place} has not built its environments and policy after {self._start_timeout} s "
                        "(WorkerOptions(start_timeout=…))"
                    ) from None
        if message is None:
            process.join(_GRACE)
            process.raise_died()
        hello: worker.Hello = pickle.loads(message)
        return hello

    def _look_after(self) -> None:
        """Sees to those that have ended, that do not get on, and that are to be started again."""
        now = self._looked = time.monotonic()
        ended = [
            place for place, process in enumerate(self._workers) if place not in self._again_at and not process.is_alive
        ]
        if ended:
            self._take_in()  # what they reported before is not lost
            self._take_leave(ended, None)
        busy = {due.place for due in self._due.values()} - set(self._again_at)
        for place in busy if self._timeout is not None else ():
            signs = self._board.signs(place)
            if signs != self._seen[place][0]:
                self._seen[place] = signs, now
            elif now - self._seen[place][1] > (self._timeout or 0.0):
                self._workers[place].kill()
                self._workers[place].join()
                self._take_in()
                self._take_leave([place], f"collector {place} took no step for {self._timeout} s (timeout)")
        for place in range(len(self)):
            self._send_on(place)
        for place in [place for place, at in self._again_at.items() if at <= now]:
            self._start_again(place)

    def _take_leave(self, places: Sequence[int], hung: str | None) -> None:
        """These have ended: raises why, or sees that others take their places."""
        _core.ipc.sweep()
        for place in places:
            self._lose(place)
        error = TimeoutError(hung) if hung is not None else self._why(places[0])
        if self._policy.on_fault == "raise":
            self._broken = first_line(error)
            raise error
        self._count_fault(error)
        for place in places:
            self._put_off(place)

    def _put_off(self, place: int) -> None:
        self._waiting[place].clear()
        for due in self._due.values():
            due.is_sent = due.is_sent and due.place != place
        now = time.monotonic()
        self._again_at[place] = now + self._backoffs[place].after_fault(now)

    def _count_fault(self, error: Exception) -> None:
        """Raises TooManyFaults when there were too many: those that end together, as with their zygote, count once."""
        now = time.monotonic()
        self._faults.append((now, first_line(error)))
        recent = [text for at, text in self._faults if now - at <= self._policy.restart_window]
        if len(recent) > self._policy.max_restarts:
            self._broken = recent[-1]
            raise TooManyFaults(
                f"{len(recent)} faults of collectors within {self._policy.restart_window} s, of which "
                f"{self._policy.max_restarts} are forgiven (FaultPolicy(max_restarts=…)):\n"
                + "\n".join(f"  - {text}" for text in recent)
            ) from error

    def _start_again(self, place: int) -> None:
        """Another process in this place, with the orders of the one before."""
        self.restarts[place] += 1
        setup = self._setups[place]
        try:
            self._start([place])
        except Exception as error:
            self._count_fault(error)
            self._put_off(place)
            return
        due = [due for due in self._due.values() if due.place == place]
        if self._begun and not any(isinstance(item.order, worker.Reset | worker.LoadState) for item in due):
            seed = (setup.seed + 7919 * self.restarts[place] * setup.total) % _SEEDS
            self._tell(place, worker.Reset(0, seed, self.episodes[place]))  # nobody waits for its report
        del self._again_at[place]
        self._send_due()

    def _why(self, place: int) -> Exception:
        """What a process that has ended reported, or else how it ended."""
        process = self._workers[place]
        try:
            process.join(_GRACE)
            while process.recv(1.0) is not None:
                pass
            process.raise_died()
        except WorkerDied as error:
            setup = self._setups[place]
            last = setup.first + setup.count - 1
            error.env_indices = range(setup.first, last + 1)
            had = f"environment {last}" if last == setup.first else f"environments {setup.first} to {last}"
            pid = f"(pid {process.pid}"
            error.args = (error.args[0].replace(pid, f"{pid}, {had}", 1),)
            return error
        except Exception as error:
            return error
        raise AssertionError


def _pack(setup: Setup, parcel: Parcel, *, gpu: bool) -> bytes:
    """As bytes; an error names the argument of Collector that is in the way."""
    parts: Mapping[str, Any] = {"env": setup.env, "policy": setup.policy, **setup.make}
    try:
        return dumps(setup, "setup", gpu=gpu, parcel=parcel)
    except TypeError:
        for name, part in parts.items():
            dumps(part, name, gpu=gpu, parcel=parcel)
        raise
