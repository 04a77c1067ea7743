"""A pool of worker processes with the interface of `multiprocessing.Pool`.

    with mp.Pool(4) as pool:
        pool.map(lambda x: x * x, range(1000))

What is different from CPython's:

- A worker that is killed, or exits, fails the one task that it had begun, with `shoal.errors.WorkerDied`; it is replaced, and
  all other tasks are done. CPython's pool waits for ever.
- An initializer that raises makes every call raise `BrokenPool`, with the exception as its cause. CPython's starts workers
  without end.
- Functions may be lambdas, closures and what a notebook defines; so may what they return.
- What is left of a map() after terminate() raises `BrokenPool`. CPython's get() waits for ever.
- A result is unpickled in the thread that asks for it. One that cannot be unpickled raises there, and harms no other.
- imap() reads its iterable in a thread of its own, at most 64 MiB ahead of the workers, and not ahead of nobody's reading.

Which task goes to which worker is decided in C++ (shoal::ipc::TaskScheduler), over memory that the pool shares with its
workers; there is no pipe, and a thread of Python only starts workers.
"""

from __future__ import annotations

import builtins
import itertools
import os
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import TimeoutError, util
from multiprocessing.pool import MaybeEncodingError, RemoteTraceback, ThreadPool
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from shoal import _core
from shoal.errors import Error, WorkerDied
from shoal.multiprocessing import pool_worker
from shoal.multiprocessing.descriptor import Descriptor
from shoal.multiprocessing.pool_worker import APPLY, MAP, STARMAP, WorkerSettings, dumps, loads, pack_task

if TYPE_CHECKING:
    from shoal.multiprocessing.logging import LogRelay

__all__ = [
    "ApplyResult",
    "AsyncResult",
    "BrokenPool",
    "IMapIterator",
    "IMapUnorderedIterator",
    "MapResult",
    "MaybeEncodingError",
    "Pool",
    "RemoteTraceback",
    "ThreadPool",
]

INIT = "INIT"
RUN = "RUN"
CLOSE = "CLOSE"
TERMINATE = "TERMINATE"

_MAX_PENDING_BYTES = 64 * 2**20
_CHUNKS_PER_WORKER = 16  # so many that one slow chunk at the end holds up little
_MAX_INLINE = 4096  # tasks that imap() pickles before it returns
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_FAILED_STARTS = 3
_LONG_CALL = 1.0  # seconds that terminate() waits for a callback, or an iterable

_EventKind = _core.pool.EventKind
_TimedOut = builtins.TimeoutError  # what shoal._core raises


class BrokenPool(Error):
    """A pool does no more: its workers cannot begin, or it was terminated."""


class Pool:
    """As `multiprocessing.Pool`.

    Args:
        processes: how many workers; by default one for each CPU that this process may use.
        initializer: called by each worker before its first task, with `initargs`.
        maxtasksperchild: how many tasks (chunks of a map are one each) a worker does before another takes its place.
        context: whose processes the workers are; by default `shoal.multiprocessing.get_context()`.
        threads: of OpenMP, MKL, OpenBLAS, NumExpr and torch in each worker; None: as the context has it.
        seed: workers seed `random`, `numpy.random` and, where it is imported, torch from the k-th child of
            `numpy.random.SeedSequence(seed)`, where k counts all workers that the pool has ever started. None: `random` and
            NumPy are seeded by the system, differently in each worker.
        affinity: "none" leaves placing to the kernel; "auto" gives each worker a CPU of its own when there are as many workers
            as CPUs; a sequence of sets of CPUs: worker i has those of entry i modulo its length.
        relay: brings here what workers print and log; WorkerDied then has a worker's last lines.

    Raises:
        ValueError, TypeError: an argument that means nothing.

    Threads: any may submit and wait. Fork: the copy in a forked child starts and ends nothing.
    """

    _state: str = INIT
    _crew: _Crew | None = None
    _pool: list[Any]

    @staticmethod
    def Process(ctx: Any, *args: Any, **kwds: Any) -> Any:
        return ctx.Process(*args, **kwds)

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        *,
        threads: int | None = None,
        seed: int | Sequence[int] | None = None,
        affinity: str | Sequence[Iterable[int]] = "none",
        relay: LogRelay | None = None,
    ) -> None:
        self._pool = []
        if processes is None:
            processes = len(os.sched_getaffinity(0))
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._ctx = _context(context, threads)
        self._processes = processes
        self._owner = os.getpid()
        settings = WorkerSettings(threads=threads, seed=_entropy(seed), cpus=_cpus(affinity, processes))
        call = (initializer, tuple(initargs))
        self._crew = _Crew(self.Process, self._ctx, self._pool, processes, call, maxtasksperchild or 0, settings, relay)
        self._terminate = util.Finalize(self, self._crew.terminate, exitpriority=15)  # type: ignore[attr-defined]
        self._state = RUN

    def __repr__(self) -> str:
        cls = self.__class__
        return f"<{cls.__module__}.{cls.__qualname__} state={self._state} pool_size={len(self._pool)}>"

    def __reduce__(self) -> Any:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __del__(self, _warn: Any = warnings.warn, _pid: Any = os.getpid) -> None:
        if self._state == RUN and getattr(self, "_owner", None) == _pid():
            _warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self)

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    # --- calls

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] = {}) -> Any:
        """`func(*args, **kwds)` in a worker."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> ApplyResult:
        """As apply(), without waiting. Callbacks run in a thread of the pool, one after the other.

        Raises:
            PicklingError: what cannot be pickled, by its path.
        """
        payload = pack_task(APPLY, dumps(func, "func"), (tuple(args), dict(kwds)))
        result = ApplyResult(self, callback, error_callback)
        self._run(result, iter([payload]))
        return result

    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """`[func(x) for x in iterable]`, in chunks of which each is a task."""
        return self._map(func, iterable, MAP, chunksize, wait=True).get()

    def map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        return self._map(func, iterable, MAP, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """`[func(*x) for x in iterable]`."""
        return self._map(func, iterable, STARMAP, chunksize, wait=True).get()

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
    ) -> MapResult:
        return self._map(func, iterable, STARMAP, chunksize, callback, error_callback)

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """An iterator over what map() returns, in order, as it comes. What the iterable raises, next() raises in its place."""
        return self._imap(IMapIterator, func, iterable, chunksize)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """As imap(), in the order in which the results come."""
        return self._imap(IMapUnorderedIterator, func, iterable, chunksize)

    def _map(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        mode: int,
        chunksize: int | None,
        callback: Callable[[Any], object] | None = None,
        error_callback: Callable[[BaseException], object] | None = None,
        wait: bool = False,
    ) -> MapResult:
        self._check_running()
        items = iterable if hasattr(iterable, "__len__") else list(iterable)
        if chunksize is None:
            chunksize = -(-len(items) // (self._processes * _CHUNKS_PER_WORKER))  # type: ignore[arg-type]
        result = MapResult(self, callback, error_callback)
        self._run(result, _chunks(mode, func, items, max(chunksize, 1)), wait)
        return result

    def _imap(self, kind: type[IMapIterator], func: Any, iterable: Iterable[Any], chunksize: int) -> IMapIterator:
        self._check_running()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        result = kind(self)
        crew = self._require_crew()
        crew.scheduler.open(result._job)
        payloads = _chunks(MAP, func, iterable, chunksize)
        if isinstance(iterable, (list, tuple, range)) and len(iterable) <= _MAX_INLINE * chunksize:
            _feed_guarded(crew.scheduler, result._job, payloads)
        else:
            crew.feed(result._job, payloads)
        return result

    def _run(self, result: ApplyResult, payloads: Iterator[bytes], wait: bool = True) -> None:
        """Adds the tasks of `result`; with wait=False leaves to a thread what is too much to hold at once."""
        self._check_running()
        crew = self._require_crew()
        crew.scheduler.open(result._job)
        count = size = 0
        try:
            for payload in payloads:
                size += len(payload)
                if size > _MAX_PENDING_BYTES:
                    if not wait:
                        crew.feed(result._job, itertools.chain([payload], payloads), count, result)
                        return
                    crew.scheduler.wait_for_room(_MAX_PENDING_BYTES)
                count += 1
                if not crew.scheduler.add(result._job, count - 1, payload):
                    break
        except BaseException:
            crew.scheduler.seal(result._job, count)
            raise
        crew.scheduler.seal(result._job, count, crew.ticket(result))

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")

    def _require_crew(self) -> _Crew:
        if self._crew is None or self._owner != os.getpid():
            raise ValueError("Pool not running: it is another process's")
        return self._crew

    # --- its end

    def close(self) -> None:
        """No more tasks; workers leave when those that were given are done."""
        if self._state == RUN:
            self._state = CLOSE
            self._require_crew().scheduler.close()

    def terminate(self) -> None:
        """Ends the workers at once. What has no result yet raises BrokenPool."""
        self._state = TERMINATE
        self._terminate()

    def join(self) -> None:
        """Waits for the workers to leave, after close() or terminate()."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        if self._state not in (CLOSE, TERMINATE):
            raise ValueError("In unknown state")
        self._require_crew().join()

    def _repopulate_pool(self) -> None:
        """CPython's: here, workers are replaced as they end."""


class _Crew:
    """The workers of a pool, and the thread that replaces them. It does not know the Pool, so that a forgotten one ends."""

    def __init__(
        self,
        make: Any,
        ctx: Any,
        pool: list[Any],
        processes: int,
        call: Any,
        quota: int,
        settings: WorkerSettings,
        relay: LogRelay | None,
    ) -> None:
        self.scheduler = _core.pool.Scheduler(processes)
        self._make = make
        self._ctx = ctx
        self._pool = pool
        self._call = call
        self._quota = quota
        self._settings = settings
        self._relay = relay
        self._started = itertools.count()
        self._failed_starts = 0
        self._owner = os.getpid()
        self._lock = threading.Lock()  # a worker is being started, or the pool is being terminated
        self._terminated = False
        self._tickets: dict[int, ApplyResult] = {}
        self._next_ticket = itertools.count(1)
        self._threads: dict[str, tuple[threading.Thread, SimpleQueue[Any]]] = {}
        self._board = Descriptor(self.scheduler.board_fd)
        try:
            for seat in range(processes):
                self._start(seat)
        except BaseException:
            self._end_workers()
            raise
        self._keeper = threading.Thread(target=self._keep, name="shoal-pool", daemon=True)
        self._keeper.start()

    def _start(self, seat: int) -> None:
        number = next(self._started)
        arguments = (
            self._board,
            seat,
            number,
            *self._call,
            self._quota,
            self._settings,
            self._relay and self._relay.end(),
        )
        self.scheduler.prepare(seat, self._quota)
        try:
            worker = self._make(self._ctx, target=pool_worker.work, args=arguments)
            worker.name = worker.name.replace("Process", "PoolWorker")
            worker.daemon = True
            worker.start()
        except BaseException:
            self.scheduler.vacate(seat)
            raise
        if seat < len(self._pool):
            self._pool[seat] = worker
        else:
            self._pool.append(worker)
        self.scheduler.occupy(seat, worker.pid)

    def _keep(self) -> None:
        try:
            while True:
                event = self.scheduler.pump()
                if event.kind == _EventKind.FINISHED:
                    return
                self._look_after(event)
        except BaseException as error:  # nobody would hear of it, and everybody would wait
            self.scheduler.stop(dumps(BrokenPool(f"the pool's own thread failed: {error!r}")))
            raise

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
        self.scheduler.stop(dumps(pool_worker.Caused(error, cause) if cause else error))

    def _replace(self, event: _core.pool.Event) -> None:
        worker = self._pool[event.seat]
        worker.join(_GRACE)
        code = worker.exitcode
        self._failed_starts = 0 if event.ready or event.retired else self._failed_starts + 1
        tail = self._log_tail(worker.pid)
        last_lines = "\nIts last lines:\n  " + "\n  ".join(tail[-10:]) if tail else ""
        error = WorkerDied(
            f"{worker.name} (pid {worker.pid}) {_end(code)} while it ran a task; it has been replaced, and no other task "
            f"is affected{last_lines}",
            worker=worker.name,
            index=event.seat,
            pid=worker.pid,
            exitcode=code,
            log_tail=tail,
            kind="killed" if code is None or code < 0 else "exit",
        )
        wanted = self.scheduler.bury(event.seat, dumps(error))
        if self._failed_starts and (self._failed_starts >= _FAILED_STARTS or (code is not None and code >= 0)):
            self._break(f"{worker.name} (pid {worker.pid}) {_end(code)} before it could begin; see what it printed")
            return
        with self._lock:
            if not wanted or self._terminated:
                return
            try:
                self._start(event.seat)
            except Exception as cause:
                self._break(f"no worker could be started in the place of one that had ended: {cause!r}", cause)

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

    def feed(self, job: Any, payloads: Iterator[bytes], first: int = 0, result: ApplyResult | None = None) -> None:
        """Adds the tasks of an open job in a thread."""
        scheduler = self.scheduler
        ticket = self.ticket(result) if result else 0
        self._hand_to(
            "feeder", lambda feed: feed(), lambda: _feed_guarded(scheduler, job, payloads, first, ticket, True)
        )

    def ticket(self, result: ApplyResult) -> int:
        """By which the scheduler tells of the end of a result that has callbacks."""
        if result._event is None:
            return 0
        number = next(self._next_ticket)
        self._tickets[number] = result
        return number

    @staticmethod
    def _call_back(result: ApplyResult) -> None:
        result._call_back()

    # --- the end

    def terminate(self) -> None:
        if self._owner != os.getpid():
            return
        with self._lock:
            self._terminated = True
        self.scheduler.stop(dumps(BrokenPool("the pool was terminated before this task was done")))
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        self._end_workers()
        self._stop_threads()

    def _end_workers(self) -> None:
        started = [worker for worker in self._pool if worker.exitcode is None]
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.join(*([_GRACE] if hasattr(worker, "kill") else []))
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
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))  # type: ignore[arg-type]
        del item


def _chunks(mode: int, func: Any, iterable: Iterable[Any], size: int) -> Iterator[bytes]:
    """The tasks of a map. `func` is pickled once."""
    pickled = dumps(func, "func")
    items = iter(iterable)
    while chunk := list(itertools.islice(items, size)):
        yield pack_task(mode, pickled, chunk)


def _feed_guarded(
    scheduler: Any, job: Any, payloads: Iterator[bytes], first: int = 0, ticket: int = 0, wait: bool = False
) -> None:
    """Adds tasks until there are no more; what the iterable raises, or pickling it, is the outcome of the task after."""
    count = first
    try:
        for payload in payloads:
            if wait:
                scheduler.wait_for_room(_MAX_PENDING_BYTES)
            count += 1
            if not scheduler.add(job, count - 1, payload):
                break
    except Exception as error:
        scheduler.put(job, count, False, pool_worker.dump_exception(error, remote=False))
        count += 1
    finally:
        scheduler.seal(job, count, ticket)


def _context(context: Any, threads: int | None) -> Any:
    if context is None:
        from shoal.multiprocessing.context import default_context

        context = default_context.get_context()
    if threads is not None and hasattr(context, "options"):
        import dataclasses

        options = dataclasses.replace(context.options, threads=threads)
        context = context.get_context(None, **vars(options))
    return context


def _entropy(seed: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    if seed is None or isinstance(seed, int):
        return seed
    return tuple(int(part) for part in seed)


def _cpus(affinity: str | Sequence[Iterable[int]], processes: int) -> tuple[tuple[int, ...], ...]:
    """Of each worker in turn; empty: any."""
    if affinity == "none":
        return ()
    mine = sorted(os.sched_getaffinity(0))
    if affinity == "auto":
        return tuple((cpu,) for cpu in mine) if len(mine) == processes else ()
    if isinstance(affinity, str):
        raise ValueError(f"Pool(affinity=…) takes 'none', 'auto' or a sequence of sets of CPUs, got {affinity!r}")
    sets = tuple(tuple(sorted(cpus)) for cpus in affinity)
    for cpus in sets:
        if not cpus or not set(cpus) <= set(mine):
            raise ValueError(f"Pool(affinity=…): this process may use the CPUs {mine}, and not {list(cpus)}")
    return sets


def _end(code: int | None) -> str:
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with code {code}"
    import signal

    try:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was killed by signal {-code}"


class ApplyResult:
    """What apply_async() returns.

    Threads: any.
    """

    def __init__(
        self,
        pool: Pool,
        callback: Callable[[Any], object] | None,
        error_callback: Callable[[BaseException], object] | None,
    ) -> None:
        self._pool: Pool | None = pool  # which lives for as long as somebody waits
        self._job = _core.pool.Job()
        self._callback = callback
        self._error_callback = error_callback
        self._event = threading.Event() if callback or error_callback else None  # set after the callback
        self._lock = threading.Lock()
        self._outcome: tuple[bool, Any] | None = None

    def ready(self) -> bool:
        """Whether there is a result, and its callback has been called."""
        return self._event.is_set() if self._event else self._job.finished()

    def successful(self) -> bool:
        """Whether it returned. Raises ValueError while it is not ready."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._load()[0]

    def wait(self, timeout: float | None = None) -> None:
        if self._event:
            self._event.wait(timeout)
        else:
            self._job.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """What the call returned; raises what it raised, or WorkerDied, or BrokenPool.

        Raises:
            multiprocessing.TimeoutError: there was no result in `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError(f"no result in {timeout} s")
        ok, value = self._load()
        if ok:
            return value
        raise value

    def _load(self) -> tuple[bool, Any]:
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = self._collect()
                except Exception as error:  # it cannot be unpickled here
                    self._outcome = False, error
                self._pool = None
            return self._outcome

    def _collect(self) -> tuple[bool, Any]:
        failure = self._job.first_failure()
        if failure is None:
            return True, self._value()
        outcome = self._job.take(failure, 0)
        assert outcome is not None
        return False, loads(outcome[2])

    def _value(self) -> Any:
        outcome = self._job.take(0, 0)
        assert outcome is not None
        return loads(outcome[2])

    def _call_back(self) -> None:
        assert self._event is not None
        try:
            ok, value = self._load()
            callback = self._callback if ok else self._error_callback
            if callback is not None:
                callback(value)
        finally:
            self._event.set()

    __class_getitem__ = classmethod(types.GenericAlias)


AsyncResult = ApplyResult


class MapResult(ApplyResult):
    """What map_async() returns. It is ready when all chunks are done; get() raises what came first."""

    def _value(self) -> list[Any]:
        values: list[Any] = []
        for index in itertools.count():
            outcome = self._job.take(index, 0)
            if outcome is None:
                return values
            values += loads(outcome[2])
        raise AssertionError


class IMapIterator:
    """What imap() returns.

    Threads: one at a time.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool: Pool | None = pool
        self._job = _core.pool.Job()
        self._values: deque[Any] = deque()
        self._index = 0

    def __iter__(self) -> IMapIterator:
        return self

    def next(self, timeout: float | None = None) -> Any:
        """The next value.

        Raises:
            multiprocessing.TimeoutError: there was none in `timeout` seconds.
        """
        while not self._values:
            try:
                outcome = self._take(timeout)
            except _TimedOut as error:
                raise TimeoutError(f"no result in {timeout} s") from error
            if outcome is None:
                self._pool = None
                raise StopIteration
            _, ok, data = outcome
            self._index += 1
            if not ok:
                raise loads(data)
            self._values.extend(loads(data))
        return self._values.popleft()

    __next__ = next

    def _take(self, timeout: float | None) -> Any:
        return self._job.take(self._index, timeout)


class IMapUnorderedIterator(IMapIterator):
    """What imap_unordered() returns."""

    def _take(self, timeout: float | None) -> Any:
        return self._job.take_any(timeout)
