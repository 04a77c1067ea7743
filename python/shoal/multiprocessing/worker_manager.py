"""The workers of a pool: who starts them, replaces them, and ends them; and the threads that a pool needs."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from shoal import _core
from shoal.errors import Error, StartFailed, WorkerDied
from shoal.multiprocessing import pool_worker
from shoal.multiprocessing.descriptor import Descriptor
from shoal.multiprocessing.pool_results import ApplyResult
from shoal.multiprocessing.pool_worker import Message, dump_exception, loads
from shoal.multiprocessing.settings import Settings
from shoal.multiprocessing.start_methods import StartMethod

if TYPE_CHECKING:
    from shoal.multiprocessing.logging import LogRelay

__all__ = ["GRACE", "MAX_PENDING_BYTES", "BrokenPool", "WorkerManager"]

MAX_PENDING_BYTES = 64 * 2**20  # of tasks that no worker was given: more are not pickled
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_FAILED_STARTS = 3
_LONG_CALL = 1.0  # seconds that terminate() waits for a callback, or an iterable

_EventKind = _core.pool.EventKind


class BrokenPool(Error):
    """A pool does no more: its workers cannot begin, or it was terminated."""


class WorkerManager:
    """The workers of a pool, and the thread that replaces them. It does not know the Pool, so that a forgotten one ends."""

    def __init__(
        self,
        make: Any,
        ctx: Any,
        pool: list[Any],
        processes: int,
        call: Any,
        quota: int,
        settings: Settings,
        relay: LogRelay | None,
    ) -> None:
        self.scheduler = _core.pool.Scheduler(processes)
        self.by_handle = _have_the_heap(ctx)
        self._make = make
        self._ctx = ctx
        self._pool = pool
        self._call = call
        self._quota = quota
        self._settings = settings
        self._relay = relay
        self._started = itertools.count()
        self._failed_starts = 0
        self._lost: str | None = None  # with what the last worker was lost, where nobody could collect its status
        self._owner = os.getpid()
        # A worker is being started, or the pool is being terminated; by a collection of garbage, both in one thread.
        self._lock = threading.RLock()
        self._terminated = False
        self._tickets: dict[int, ApplyResult] = {}
        self._next_ticket = itertools.count(1)
        self._unheard = threading.Event()  # the keeper listens no more
        self._threads: dict[str, tuple[threading.Thread, SimpleQueue[Any]]] = {}
        self._segment = Descriptor(self.scheduler.segment_fd)
        try:
            for slot in range(processes):
                self._start(slot)
        except BaseException:
            self._end_workers()
            raise
        self._keeper = threading.Thread(target=self._keep, name="shoal-pool", daemon=True)
        self._keeper.start()

    def _start(self, slot: int) -> None:
        number = next(self._started)
        self.scheduler.prepare(slot, self._quota)
        arguments = (
            self._segment,
            slot,
            self.scheduler.shelf(slot) if self.by_handle else None,
            number,
            *self._call,
            self._quota,
            self._settings._replace(relay=None if self._relay is None else self._relay.end()),
        )
        try:
            worker = self._make(self._ctx, target=pool_worker.work, args=arguments)
            worker.name = worker.name.replace("Process", "PoolWorker")
            worker.daemon = True
            worker.start()
        except BaseException:
            self.scheduler.vacate(slot)
            raise
        if slot < len(self._pool):
            self._pool[slot] = worker
        else:
            self._pool.append(worker)
        self.scheduler.occupy(slot, getattr(worker, "pid", -1))

    def _keep(self) -> None:
        try:
            while True:
                event = self.scheduler.pump()
                if event.kind == _EventKind.FINISHED:
                    return
                self._look_after(event)
        except BaseException as error:  # nobody would hear of it, and everybody would wait
            self.scheduler.stop(dump_exception(BrokenPool(f"the pool's own thread failed: {error!r}"), remote=False))
            raise
        finally:
            self._unheard.set()
            while (event := self.scheduler.pump()).kind != _EventKind.FINISHED:  # what came just before
                if event.kind == _EventKind.NOTIFY and (result := self._tickets.pop(event.ticket, None)):
                    self._hand_to("callbacks", self._call_back, result)

    def _look_after(self, event: _core.pool.Event) -> None:
        if event.kind == _EventKind.NOTIFY:
            self._hand_to("callbacks", self._call_back, self._tickets.pop(event.ticket))
        elif event.kind == _EventKind.BROKEN:
            cause = loads(event.bytes)
            self._break(f"the initializer of the pool's workers raised {type(cause).__name__}: {cause}", cause)
        elif event.kind == _EventKind.DIED:
            self._replace(event)

    def _break(self, what: str, cause: BaseException | None = None) -> None:
        error = BrokenPool(what)
        error.__cause__ = cause
        self.scheduler.stop(dump_exception(error, remote=False))

    def _replace(self, event: _core.pool.Event) -> None:
        worker = self._pool[event.slot]
        worker.join(GRACE)
        code = worker.exitcode
        lost = getattr(getattr(worker, "_popen", None), "lost", None)
        if event.ready or event.retired:
            self._failed_starts = 0
        elif lost is None or lost != self._lost:  # one zygote takes many: that counts once
            self._failed_starts += 1
        self._lost = lost
        how = _end(code) if lost is None else f"ended with {lost}"
        by_itself = lost is None and code is not None and code >= 0
        tail = self._log_tail(worker.pid)
        last_lines = "\nIts last lines:\n  " + "\n  ".join(tail[-10:]) if tail else ""
        error = WorkerDied(
            f"{worker.name} (pid {worker.pid}) {how} while it ran a task; it has been replaced, and no other task "
            f"is affected{last_lines}",
            worker=worker.name,
            index=event.slot,
            pid=worker.pid,
            exitcode=code,
            log_tail=tail,
            kind="exit" if by_itself else "killed",
        )
        wanted = self.scheduler.bury(event.slot, dump_exception(error, remote=False))
        if self._failed_starts and (self._failed_starts >= _FAILED_STARTS or by_itself):
            self._break(f"{worker.name} (pid {worker.pid}) {how} before it could begin; see what it printed")
            return
        with self._lock:
            if not wanted or self._terminated:
                return
            if not event.retired:
                _core.log.write("info", "ipc", f"{worker.name} (pid {worker.pid}) {how}; another takes its place")
            try:
                self._start_again(event.slot)
            except Exception as cause:
                self._break(f"no worker could be started in the place of one that had ended: {cause!r}", cause)

    def _start_again(self, slot: int) -> None:
        while True:
            try:
                return self._start(slot)
            except StartFailed:  # a zygote that was killed meanwhile: the next start makes another
                self._failed_starts += 1
                if self._failed_starts >= _FAILED_STARTS:
                    raise

    def _log_tail(self, pid: int) -> tuple[str, ...]:
        if self._relay is None:
            return ()
        self._relay.drain(pid, 1.0)
        return self._relay.tail(pid)

    # --- threads that exist when they are needed

    def _hand_to(self, name: str, what: Callable[[Any], None], item: Any) -> None:
        with self._lock:
            if name not in self._threads:
                items: SimpleQueue[Any] = SimpleQueue()
                thread = threading.Thread(target=_serve, args=(items, what), name=f"shoal-pool-{name}", daemon=True)
                self._threads[name] = (thread, items)
                thread.start()
            self._threads[name][1].put(item)

    def feed_later(
        self, job: Any, payloads: Iterator[Message], first: int = 0, result: ApplyResult | None = None
    ) -> None:
        """Adds the tasks of an open job in a thread."""
        self._hand_to("feeder", lambda run: run(), lambda: self.feed(job, payloads, first, result, wait=True))

    def feed(
        self,
        job: Any,
        payloads: Iterator[Message],
        first: int = 0,
        result: ApplyResult | None = None,
        *,
        wait: bool = False,
    ) -> None:
        """Adds tasks until there are no more; what the iterable raises, or pickling it, is the outcome of the task after."""
        count = first
        try:
            for payload, blocks in payloads:
                if wait:
                    self.scheduler.wait_for_room(MAX_PENDING_BYTES)
                count += 1
                if not self.scheduler.add(job, count - 1, payload, blocks):
                    break
        except Exception as error:
            self.scheduler.put(job, count, False, dump_exception(error, remote=False))
            count += 1
        finally:
            self.seal(job, count, result)

    def seal(self, job: Any, count: int, result: ApplyResult | None = None) -> None:
        """The job has so many tasks. Of a result that has callbacks the scheduler tells the keeper when it is there."""
        if result is None or result._event is None:
            self.scheduler.seal(job, count)
            return
        ticket = next(self._next_ticket)
        self._tickets[ticket] = result
        self.scheduler.seal(job, count, ticket)
        if self._unheard.is_set() and self._tickets.pop(ticket, None) is not None:
            if self._terminated:  # and its threads have ended
                self._call_back(result)
            else:
                self._hand_to("callbacks", self._call_back, result)

    @staticmethod
    def _call_back(result: ApplyResult) -> None:
        result._call_back()

    # --- the end

    def terminate(self) -> None:
        if self._owner != os.getpid():
            return
        with self._lock:
            self._terminated = True
        error = BrokenPool("the pool was terminated before this task was done")
        self.scheduler.stop(dump_exception(error, remote=False))
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        self._end_workers()
        self._stop_threads()

    def _end_workers(self) -> None:
        started = [worker for worker in self._pool if worker.exitcode is None]
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.join(*([GRACE] if hasattr(worker, "kill") else []))
            if worker.exitcode is None and hasattr(worker, "kill"):
                worker.kill()
                worker.join()

    def join(self) -> None:
        self._keeper.join()
        for worker in list(self._pool):
            worker.join()
        self._stop_threads()

    def _stop_threads(self) -> None:
        """One that is in the caller's code for long is left there: it is told that there is nothing left to do."""
        with self._lock:
            threads = [*self._threads.values()]
            self._threads.clear()
        for _, items in threads:
            items.put(None)
        for thread, _ in threads:
            if thread is not threading.current_thread():
                thread.join(_LONG_CALL)


def _serve(items: SimpleQueue[Any], what: Callable[[Any], None]) -> None:
    while (item := items.get()) is not None:
        try:
            what(item)
        except BaseException:  # of a callback: the others are not to suffer
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        del item


def _have_the_heap(ctx: Any) -> bool:
    """Whether processes of a context share this one's heap: ours do, and forks of whatever context."""
    return isinstance(ctx, StartMethod) or ctx.get_start_method() == "fork"


def _end(code: int | None) -> str:
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"
