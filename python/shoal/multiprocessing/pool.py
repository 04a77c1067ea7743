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

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import util
from multiprocessing.pool import (  # type: ignore[attr-defined]  # CPython has them, typeshed does not
    MaybeEncodingError,
    RemoteTraceback,
    ThreadPool,
)
from typing import Any

from shoal.multiprocessing.logging import LogRelay, relay_of
from shoal.multiprocessing.pool_results import ApplyResult, AsyncResult, IMapIterator, IMapUnorderedIterator, MapResult
from shoal.multiprocessing.pool_worker import APPLY, MAP, STARMAP, Message, dumps, pack_task
from shoal.multiprocessing.settings import Seed, Settings, allowed_cpus, entropy, thread_count
from shoal.multiprocessing.start_methods import context_of, default_context
from shoal.multiprocessing.worker_manager import MAX_PENDING_BYTES, BrokenPool, WorkerManager
from shoal.reprs import never_raises

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

_CHUNKS_PER_WORKER = 16  # so many that one slow chunk at the end holds up little
_MAX_INLINE = 4096  # tasks that imap() pickles before it returns


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
        relay: a LogRelay, or True, brings here what workers print and log; WorkerDied then has a worker's last lines.

    Raises:
        ValueError, TypeError: an argument that means nothing.

    Threads: any may submit and wait. Fork: the copy in a forked child starts and ends nothing.
    """

    _state: str = INIT
    _manager: WorkerManager | None = None
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
        seed: Seed = None,
        affinity: str | Sequence[Iterable[int]] = "none",
        relay: LogRelay | bool | None = None,
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
        count = thread_count(threads, "Pool(threads=…)")
        settings = Settings(count, entropy(seed, "Pool(seed=…)"), _cpus(affinity, processes), fresh_randomness=True)
        self._ctx = _context(context, count)
        self._processes = processes
        self._owner = os.getpid()
        call = (initializer, tuple(initargs))
        read_by = None if relay is None or relay is False else relay_of(relay, "Pool(relay=…)")
        self._manager = WorkerManager(
            self.Process, self._ctx, self._pool, processes, call, maxtasksperchild or 0, settings, read_by
        )
        self._terminate = util.Finalize(self, self._manager.terminate, exitpriority=15)
        self._state = RUN

    @never_raises
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
        by_handle = self._require_manager().by_handle
        message = pack_task(APPLY, dumps(func, "func", by_handle), (tuple(args), dict(kwds)), by_handle)
        result = ApplyResult(self, callback, error_callback)
        self._run(result, iter([message]))
        return result

    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """`[func(x) for x in iterable]`, in chunks of which each is a task."""
        results: list[Any] = self._map(func, iterable, MAP, chunksize, wait=True).get()
        return results

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
        results: list[Any] = self._map(func, iterable, STARMAP, chunksize, wait=True).get()
        return results

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
            chunksize = -(-len(items) // (self._processes * _CHUNKS_PER_WORKER))  # type: ignore[arg-type]  # it has a length
        result = MapResult(self, callback, error_callback)
        messages = _chunks(mode, func, items, max(chunksize, 1), self._require_manager().by_handle)
        self._run(result, messages, wait)
        return result

    def _imap(self, kind: type[IMapIterator], func: Any, iterable: Iterable[Any], chunksize: int) -> IMapIterator:
        self._check_running()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        result = kind(self)
        manager = self._require_manager()
        manager.scheduler.open(result._job)
        messages = _chunks(MAP, func, iterable, chunksize, manager.by_handle)
        if isinstance(iterable, (list, tuple, range)) and len(iterable) <= _MAX_INLINE * chunksize:
            manager.feed(result._job, messages)
        else:
            manager.feed_later(result._job, messages)
        return result

    def _run(self, result: ApplyResult, messages: Iterator[Message], wait: bool = True) -> None:
        """Adds the tasks of `result`; with wait=False leaves to a thread what is too much to hold at once."""
        self._check_running()
        manager = self._require_manager()
        manager.scheduler.open(result._job)
        count = size = 0
        try:
            for payload, blocks in messages:
                size += len(payload) + sum(block.nbytes for block in blocks)
                if size > MAX_PENDING_BYTES:
                    if not wait:
                        rest = itertools.chain([(payload, blocks)], messages)
                        manager.feed_later(result._job, rest, count, result)
                        return
                    manager.scheduler.wait_for_room(MAX_PENDING_BYTES)
                count += 1
                if not manager.scheduler.add(result._job, count - 1, payload, blocks):
                    break
        except BaseException:
            manager.seal(result._job, count)
            raise
        manager.seal(result._job, count, result)

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")

    def _require_manager(self) -> WorkerManager:
        if self._manager is None or self._owner != os.getpid():
            raise ValueError("Pool not running: it is another process's")
        return self._manager

    # --- its end

    def close(self) -> None:
        """No more tasks; workers leave when those that were given are done."""
        if self._state == RUN:
            self._state = CLOSE
            self._require_manager().scheduler.close()

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
        self._require_manager().join()

    def _repopulate_pool(self) -> None:
        """CPython's: here, workers are replaced as they end."""


def _chunks(mode: int, func: Any, iterable: Iterable[Any], size: int, by_handle: bool) -> Iterator[Message]:
    """The tasks of a map. `func` is pickled once."""
    pickled = dumps(func, "func", by_handle)
    items = iter(iterable)
    while chunk := list(itertools.islice(items, size)):
        yield pack_task(mode, pickled, chunk, by_handle)


def _context(context: Any, threads: int | None) -> Any:
    if context is None:
        context = default_context()
    if threads is not None and hasattr(context, "options"):
        import dataclasses

        context = context_of(context.get_start_method(), dataclasses.replace(context.options, threads=threads))
    return context


def _cpus(affinity: str | Sequence[Iterable[int]], processes: int) -> tuple[tuple[int, ...], ...]:
    """Of each worker in turn; empty: any."""
    what = "Pool(affinity=…)"
    if isinstance(affinity, str):
        if affinity not in ("none", "auto"):
            raise ValueError(f"{what} takes 'none', 'auto' or a sequence of sets of CPUs, got {affinity!r}")
        mine = sorted(os.sched_getaffinity(0))
        return tuple((cpu,) for cpu in mine) if affinity == "auto" and len(mine) == processes else ()
    if not isinstance(affinity, Iterable):
        raise TypeError(f"{what} takes 'none', 'auto' or a sequence of sets of CPUs, got {affinity!r}")
    sets = tuple(allowed_cpus(cpus, what) for cpus in affinity)
    if not sets:
        raise ValueError(f"{what} takes at least one set of CPUs; 'none' leaves placing to the kernel")
    return sets
