"""Worker processes that several vector environments share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import shoal.process
from shoal import _core
from shoal.reprs import never_raises
from shoal.vector import pool_worker
from shoal.vector.forks import of_another_process
from shoal.vector.options import WorkerOptions

__all__ = ["WorkerPool"]


class WorkerPool:
    """`num_workers` worker processes for any number of vector environments.

        with shoal.WorkerPool(8) as pool:
            train = shoal.make_vec("CartPole-v1", 64, batch_size=32, pool=pool)
            evaluation = shoal.make_vec("CartPole-v1", 8, pool=pool)

    The environments of each are divided among the workers, which take turns with them. Closing a vector environment
    leaves the others alone. The pool ends with close(), or with the last of its users: this object and the vector
    environments.

    Args:
        num_workers: by default one for each CPU that this process may use.
        context: how they start, as for `make_vec`.
        worker: how they are set up. `config` and `start_timeout` hold for the environments that are made in the pool.

    Threads: any; the vector environments may belong to different threads.
    Fork: in a forked child make_vec() refuses it, and close() does nothing.
    """

    def __init__(
        self, num_workers: int | None = None, *, context: str = "auto", worker: WorkerOptions | None = None
    ) -> None:
        if worker is not None and not isinstance(worker, WorkerOptions):
            raise TypeError(f"WorkerPool(worker=…) takes shoal.WorkerOptions(…), got {worker!r}")
        self.options = worker if worker is not None else WorkerOptions()
        self.context = context
        self._prepare(_checked(num_workers), self.options.preload)
        self._start()

    @classmethod
    def _private(cls, num_workers: int, context: str, options: WorkerOptions, preload: Sequence[str]) -> WorkerPool:
        """For one vector environment, which packs its factories before _start(): forked workers inherit them."""
        pool = cls.__new__(cls)
        pool.options, pool.context = options, context
        pool._prepare(num_workers, preload)
        return pool

    def _prepare(self, num_workers: int, preload: Sequence[str]) -> None:
        options = self.options
        self._maker = os.getpid()
        self.num_workers = num_workers
        self.shared_state = _core.process.SharedState.create(options.shared_bytes)
        self.launcher = shoal.process.launcher(
            self.context,
            preload=[pool_worker.__name__, *preload],
            **options.for_launcher,
        )

    def _start(self) -> None:
        options = self.options
        payloads = self.launcher.pack([(pool_worker.run, options.gpus(), options.nested)], name="pool")
        self._pool = _core.worker_pool(
            self.launcher.handle, payloads * self.num_workers, options.for_engine, self.shared_state
        )

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers' process ids, as they are now."""
        return tuple(self._pool.pid(worker) for worker in range(self.num_workers))

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """Ends the workers. Vector environments that are still open raise RuntimeError from then on. A second time does
        nothing."""
        self._pool.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        return f"<shoal.WorkerPool of {self.num_workers} workers{', closed' if self.closed else ''}>"

    def _check_maker(self) -> None:
        """Raises RuntimeError in a forked child, which the workers do not answer. For `make_vec`."""
        if self._maker != os.getpid():
            raise of_another_process("this WorkerPool was", self._maker)

    def open(
        self, payloads: Sequence[bytes], counts: Sequence[int], options: dict[str, Any], owned: bool
    ) -> _core.VectorEnv:
        """A vector environment of `counts[i]` environments in worker i. For `make_vec`."""
        self._check_maker()
        return _core.pool_vector_env(self._pool, list(payloads), list(counts), options, owned)


def _checked(num_workers: int | None) -> int:
    if num_workers is None:
        return len(os.sched_getaffinity(0))
    if isinstance(num_workers, bool) or not hasattr(num_workers, "__index__"):
        raise TypeError(f"WorkerPool(num_workers=…) takes an int, got {num_workers!r}")
    if num_workers < 1:
        raise ValueError(f"WorkerPool(num_workers=…) takes at least 1, got {num_workers}")
    return int(num_workers)
