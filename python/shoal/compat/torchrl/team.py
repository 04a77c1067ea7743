"""The worker processes of a ParallelEnv, one environment's buffer each, on Shoal's engine."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.compat.closing import WarnsAtClose
from shoal.compat.starting import preload_of, start_together
from shoal.compat.torchrl.buffers import Buffer
from shoal.compat.torchrl.slots import Slot, SlotGroup
from shoal.ipc.pickling import dumps
from shoal.vector.factories import recipe_of
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.options import WorkerOptions
from shoal.vector.seeding import LastSeeds
from shoal.vector.vector_env import VectorEnv

__all__ = ["Team", "started"]


class Team(WarnsAtClose, VectorEnv):
    """Environments that step what lies in their buffers. Nothing is batched: the buffers are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spec = None  # factories do not say how the whole could be made again
        self._was_reset = True  # or not: TorchRL's environments say whether they may be stepped before
        self._last_seeds = LastSeeds(self.num_envs)
        self._shares = super()._ranges()
        self._worker_of = [worker for worker, (lo, hi) in enumerate(self._shares) for _ in range(lo, hi)]

    def carry_out(self, orders: np.ndarray, timeout: float) -> dict[int, Fault]:
        """Has every environment do its order, int64 [num_envs], and waits. What was lost meanwhile, by environment, has a new
        one in its place, in the first step of an episode.

        Raises:
            TimeoutError: some are not done after `timeout` seconds.
            shoal.WorkerDied, and what an environment raised.
        """
        self._check_idle("carry_out")
        self._io.step_async(orders)
        self._pending = "step"
        extra = self._wait(self._io.step_wait, timeout)[-1]
        if not extra & _core.EXTRA_FAULT:
            return {}
        lost: dict[int, Fault] = {}
        faults = dict(self._engine.faults())
        while faults:
            lost = {**faults, **lost}
            mask = np.zeros(self.num_envs, np.uint8)
            mask[list(faults)] = 1
            self._io.reset_async(self._last_seeds.of_successors(faults), mask)
            self._pending = "reset"
            extra = self._wait(self._io.reset_wait, timeout)[-1]
            faults = dict(self._engine.faults()) if extra & _core.EXTRA_FAULT else {}
        return lost

    def ask(self, messages: Mapping[int, tuple[Any, Any]], timeout: float | None = None) -> dict[int, Any]:
        """What Slot.answer() says to a command and its data, by environment; all workers answer at the same time.

        Raises:
            shoal.WorkerDied, and what an environment raised, the first of them.
            RuntimeError: for environments that were lost, and have no successor yet.
        """
        self._check_idle("ask")
        packed = [b""] * self.num_workers
        for worker in {self._worker_of[i] for i in messages}:
            own = {i: message for i, message in messages.items() if self._worker_of[i] == worker}
            packed[worker] = dumps(("answer", (own,)), f"the arguments of {next(iter(own.values()))[0]!r}")
        answers: dict[int, Any] = {}
        for worker, reply in enumerate(self._request(packed, timeout)):
            own_envs = sorted(i for i in messages if self._worker_of[i] == worker)
            if own_envs and not reply:
                raise RuntimeError(f"environment {own_envs[0]} was lost: the next step has a new one in its place")
            answers.update(zip(own_envs, pickle.loads(reply) if reply else (), strict=True))
        for i, (command, data) in messages.items():
            if command == "seed":
                self._last_seeds.note([data[0]] * self.num_envs, [i])
        return answers

    def pids(self) -> list[int]:
        """The process of every environment."""
        workers = self._engine.stats()["workers"]
        return [workers[worker]["pid"] for worker in self._worker_of]

    def _ranges(self) -> list[tuple[int, int]]:
        return self._shares

    def _check_idle(self, call: str) -> None:
        if not self.closed:
            self.finish_interrupted()
        super()._check_idle(call)

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{call}: this ParallelEnv is closed")


def started(
    makers: Sequence[Callable[..., Any]],
    kwargs: Sequence[dict[str, Any]],
    buffers: Sequence[Buffer | None],
    *,
    num_processes: int,
    context: str,
    threads: int | None,
    faults: FaultPolicy,
    options: WorkerOptions,
) -> Team:
    """Starts the workers, and waits until all environments are built.

    Args:
        makers, kwargs, buffers: one an environment.
        context: "fork" gives way to "auto", with a warning that names the cause, where it would break.

    Raises:
        TypeError: for functions that cannot be sent to a worker.
        what an environment raised while it was built.
    """
    factories = [
        functools.partial(Slot, maker, dict(own), threads, buffer)
        for maker, own, buffer in zip(makers, kwargs, buffers, strict=True)
    ]
    recipe = recipe_of(factories, None, {})._replace(preload=preload_of(makers, Slot.__module__))
    return start_together(
        Team,
        recipe,
        num_processes,
        context,
        AutoresetMode.DISABLED,
        faults.settings(options.start_timeout),
        options,
        kind=SlotGroup,
        asks_for_fork="mp_start_method='fork'",
    )
