"""Processes that train together: those that a launcher started (torchrun, mpirun, srun, Ray Train), or that `nproc=` starts."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shoal import _core
from shoal.errors import Error, PeerLost

__all__ = ["Ranks", "begin", "policy_on_ranks"]

Group = _core.group.Group
Launch = _core.group.Launch

_RANKS_OF_A_CPU = 16
"""That `nproc=` starts: far more than are of use, far fewer than fill memory."""
_started_as: Any = None  # the Launch of a process that `nproc=` started


def policy_on_ranks(size: int) -> ValueError:
    return ValueError(
        f"a policy= of one's own is not trained on {size} ranks together: with nproc=1 each process trains by itself"
    )


class Ranks:
    """The ranks of a run, of which this process is one; alone, there is no group.

    Attributes:
        group: the C++ Group; None: this process trains alone.
        rank: of this process.
    """

    group: Any = None

    def __init__(self, nproc: int | None, *, alone: bool = False) -> None:
        """Joins the ranks that a launcher started, unless `nproc` says otherwise.

        Args:
            alone: it is a policy= that is trained, which ranks cannot do together.

        Raises:
            ValueError: for a number that is none, or far above that of CPUs, or more than 1 where a launcher has started this
                process; for `alone` where there would be several.
        """
        if nproc is not None and (not isinstance(nproc, int) or isinstance(nproc, bool) or nproc < 1):
            raise ValueError(f"nproc is {nproc!r}, it has to be a number of processes, 1 or more")
        if nproc is not None and nproc > (most := _RANKS_OF_A_CPU * len(os.sched_getaffinity(0))):
            raise ValueError(
                f"nproc={nproc} is more than {_RANKS_OF_A_CPU} processes for each CPU that this one may use, where they only take "
                f"turns: give at most {most}, or start them on several hosts, by torchrun, mpirun or srun"
            )
        self._nproc = nproc
        self._workers: dict[int, _core.process.WorkerProcess] = {}
        self._patience = 5.0  # seconds for one of them to end by itself
        self.rank = 0
        launch = _started_as or Launch.detect()
        if alone and (launch.size > 1 if nproc is None else nproc > 1):
            raise policy_on_ranks(launch.size if nproc is None else nproc)
        if nproc is None and launch.size > 1:
            self.group = Group.join(launch)
            self.rank = self.group.rank
        elif nproc is not None and nproc > 1 and launch.size > 1:
            raise ValueError(
                f"nproc={nproc} starts ranks of its own, but {launch.launcher} has started this process as rank {launch.rank} "
                f"of {launch.size}: leave nproc out to train with those"
            )

    @property
    def size(self) -> int:
        """Of those that `nproc` asks for before they start, too."""
        return self._nproc or 1 if self.group is None else int(self.group.size)

    @property
    def first(self) -> bool:
        """Whether this process reads and writes the run's directory."""
        return self.rank == 0

    def start(self, run: Callable[..., None], arguments: Mapping[str, Any], context: str) -> None:
        """Where `nproc` asks for some, starts the others and joins them as rank 0.

        Args:
            run: what the others call, with (context, rank, size, attempt, arguments).
            arguments: of Trainer, for the others.
            context: how they are started.

        Raises:
            PicklingError: naming the argument that cannot be sent to them.
            WorkerDied: one ended before all had come.
        """
        if self._nproc is None or self._nproc == 1:
            return
        import shoal.process

        attempt = uuid.uuid4().hex
        launcher = shoal.process.launcher(context, preload=[run.__module__], hide_gpu=False, threads=1)
        ranks = range(1, self._nproc)
        calls = [(run, rank, self._nproc, attempt, dict(arguments)) for rank in ranks]
        self._workers = dict(zip(ranks, launcher.start(calls, "rank", ranks), strict=True))
        self.group = Group.join(Launch.local(0, self._nproc, attempt), look=self._look)

    def _look(self) -> None:
        for worker in self._workers.values():
            if not worker.is_alive:
                worker.raise_died()

    def same(self, value: Callable[[], Any]) -> Any:
        """What it is at rank 0, on all ranks; as JSON has it. Ranks that `nproc` started have been told, and have its files."""
        if self.group is None or _started_as is not None:
            return value()
        return json.loads(self.group.broadcast(json.dumps(value() if self.first else None).encode()))

    def agree(self, told: Mapping[str, Any]) -> None:
        """Raises ValueError on each rank that was given other values than rank 0, with the first of them."""
        own = json.loads(json.dumps(told))
        for name, value in self.same(lambda: own).items():
            if own.get(name) != value:
                raise ValueError(
                    f"rank {self.rank} has {name}={own.get(name)!r}, and rank 0 has {value!r}: give all ranks the same arguments"
                )

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Within, what this process raises is told to the others, and ends those that it started."""
        try:
            yield
        except BaseException as error:
            if self.group is not None and not isinstance(error, PeerLost):
                self.group.fail(f"{type(error).__name__}: {error}")
            self.close()
            raise

    def explained(self, lost: PeerLost) -> PeerLost:
        """With what is known here about the end of a process that this one started: its exit code and last lines."""
        self._patience = 0.5
        worker = self._workers.get(lost.rank)
        if worker is None or not worker.join(self._patience):  # a stopped one does not end
            return lost
        try:
            worker.raise_died()
        except Error as died:
            how = str(died).replace(f"{worker.name} ", f"rank {lost.rank} ", 1)
            return PeerLost(f"{lost}\n{how}", rank=lost.rank, host=lost.host, pid=lost.pid)
        return lost

    def workers(self) -> int:
        """How many processes step this rank's environments where nobody says it: one for each CPU that is its own, which with one
        CPU is this process."""
        cpus = len(os.sched_getaffinity(0))
        if cpus == os.cpu_count():  # else a launcher has shared them out
            cpus //= self.group.launch.local_size
        return cpus if cpus > 1 else 0

    def close(self) -> None:
        """Leaves the group, and ends the processes that this one started. Idempotent."""
        if self.group is not None:
            self.group.leave()
            self.group = None
        for worker in self._workers.values():
            worker.join(self._patience)
        self._workers = {}  # which kills those that are still there


def begin(rank: int, size: int, attempt: str) -> None:
    """For a process that `nproc=` started: says as which, before it makes its Trainer."""
    global _started_as
    _started_as = Launch.local(rank, size, attempt)
    _core.trace.open(f"rank {rank}")
