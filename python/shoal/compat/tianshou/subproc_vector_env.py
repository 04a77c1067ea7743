"""`tianshou.env.SubprocVectorEnv` and `ShmemVectorEnv` on Shoal's engine: environments in worker processes."""

from __future__ import annotations

import multiprocessing
import numbers
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
from tianshou.env import ShmemVectorEnv as PeersShmemVectorEnv
from tianshou.env import SubprocVectorEnv as PeersSubprocVectorEnv

from shoal.compat.arguments import factories_of, policy_of, positive, rows_of, worker_options
from shoal.compat.closing import HoldsEnvironments
from shoal.compat.tianshou.env_worker import Worker
from shoal.compat.tianshou.slots import Came, merged, started
from shoal.reprs import never_raises
from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["ShmemVectorEnv", "SubprocVectorEnv"]


class _OnSlots(HoldsEnvironments):
    """What both classes have in common."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        wait_num: int | None,
        timeout: float | None,
        *,
        cast: bool,
        context: Any,
        num_workers: int | None,
        on_fault: str | FaultPolicy,
        worker: WorkerOptions | None,
    ) -> None:
        who = type(self).__name__
        factories = factories_of(env_fns, who)
        self._env_fns = factories
        self.env_num = len(factories)
        self.wait_num = wait_num or self.env_num
        assert 1 <= self.wait_num <= self.env_num, f"wait_num should be in [1, {self.env_num}], but got {wait_num}"
        self.timeout = timeout
        assert timeout is None or timeout > 0, f"timeout is {timeout}, it should be positive if provided!"
        self.is_async = self.wait_num != self.env_num or timeout is not None
        self.ready_id = list(range(self.env_num))
        self.waiting_id: list[int] = []
        self._slots = started(
            factories,
            cast=cast,
            num_workers=self.env_num
            if num_workers is None
            else min(self.env_num, positive(num_workers, f"{who}(num_workers=…)")),
            context=_method_of(context, who),
            faults=policy_of(on_fault, who, "a collector takes a row of every environment that it steps"),
            worker=worker_options(worker, who, "a collector takes a row of every environment that it steps"),
        )
        self.is_closed = False
        self.workers = [Worker(self, i) for i in range(self.env_num)]
        self.worker_class = Worker
        self._slots.take_places()

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.env_num} environments{', closed' if self.is_closed else ''}>"

    @property
    def waiting_conn(self) -> list[Worker]:
        """The workers of `waiting_id`."""
        return [self.workers[i] for i in self.waiting_id]

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
        self._assert_is_not_closed()
        ids = self._ids(env_id, "reset")
        came = self._slots.reset_now(ids, "reset", dict.fromkeys(ids, kwargs) if kwargs else None)
        assert not any("broken" in said for said in came.said.values()), (
            "The environment does not adhere to the Gymnasium's API."
        )
        if "seed" in kwargs:
            for i in ids:
                self.workers[i].seed_action_space(kwargs["seed"])
        return self._stacked(came, refuse_tuples=True), np.array(self._slots.infos(came))

    def step(self, action: Any, id: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        self._assert_is_not_closed()
        if self.is_async:
            if action is not None:
                self._begin(action, self._ids(id, "step"))
            came = merged(self._ready_steps())
        elif action is None:
            raise ValueError("action must be not-None for non-async")
        else:
            ids = self._ids(id, "step")
            assert len(action) == len(ids), f"step(): {len(action)} actions for {len(ids)} environments"
            came = self._slots.step_now(ids, action)
        return self._result_of(came)

    def _result_of(self, came: Came) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        infos = np.empty(len(came.ids), object)
        for place, (i, info) in enumerate(zip(came.ids, self._slots.infos(came), strict=True)):
            info["env_id"] = i
            infos[place] = info
        terminated, truncated = self._slots.flags(came)
        return self._stacked(came), self._slots.rewards(came), terminated, truncated, infos

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """An attribute of environments, one an element, or None where there is none of that name, be it in the environment or
        in one that it wraps."""
        return self._of_each(id, "get_env_attr", ("get", key))

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:
        """Sets an attribute of environments, within all wrappers, as the peer does."""
        self._of_each(id, "set_env_attr", ("set", key, value))

    def seed(self, seed: int | Sequence[int | None] | None = None) -> list[Any]:
        """Seeds the environments and their action spaces: environment i by `seed + i`, or by element i.

        Returns:
            what each environment's own seed() returned, None where it has none and was reset with the seed.
        """
        self._assert_is_not_closed()
        if self.waiting_id:
            raise RuntimeError(f"Environments {self.waiting_id} are still stepping, cannot seed them now.")
        ids = list(range(self.env_num))
        if seed is None:
            seeds: list[Any] = [None] * self.env_num
        elif isinstance(seed, numbers.Integral):
            seeds = [int(seed) + i for i in ids]
        else:
            # mypy does not know that an int is an Integral
            seeds = [None if own is None else int(own) for own in seed]  # type: ignore[union-attr]  # no int comes here
            if len(seeds) != self.env_num:
                raise ValueError(f"seed(): {len(seeds)} seeds for {self.env_num} environments")
        return self._seeded(dict(zip(ids, seeds, strict=True)))

    def render(self, **kwargs: Any) -> list[Any]:
        self._assert_is_not_closed()
        if self.waiting_id:
            raise RuntimeError(f"Environments {self.waiting_id} are still stepping, cannot render them now.")
        return self._of_each(None, "render", ("render", kwargs))

    def close(self) -> None:
        """Closes the environments and ends their processes, also in the middle of steps."""
        self._assert_is_not_closed()
        self.is_closed = True
        for worker in self.workers:
            worker.is_closed = True
        self._slots.close()

    def stats(self) -> dict[str, Any]:
        """See `shoal.VectorEnv.stats()`."""
        return self._slots.stats()

    def health(self) -> list[dict[str, Any]]:
        """See `shoal.VectorEnv.health()`."""
        return self._slots.health()

    def _assert_is_not_closed(self) -> None:
        assert not self.is_closed, f"Methods of {type(self).__name__} cannot be called after close."

    def _ids(self, given: Any, call: str) -> list[int]:
        """The environments that are meant, none of which is stepping."""
        ids = rows_of(given, self.env_num, f"{type(self).__name__}.{call}()")
        if not ids:
            raise ValueError(f"{type(self).__name__}.{call}(): no environment is named")
        for i in ids:
            assert i not in self.waiting_id, f"Cannot interact with environment {i} which is stepping now."
        if len(set(ids)) != len(ids):
            raise ValueError(f"{type(self).__name__}.{call}(): an environment is named twice: {ids}")
        return ids

    def _seeded(self, seeds: dict[int, Any]) -> list[Any]:
        came = self._slots.reset_now(list(seeds), "seed", seeds)
        for i in seeds:
            self.workers[i].seed_action_space(seeds[i])
        return [came.said[i]["seeded"][0] for i in seeds]

    def _begin(self, actions: Any, ids: list[int]) -> None:
        assert len(actions) == len(ids), f"step(): {len(actions)} actions for {len(ids)} environments"
        try:
            self._slots.begin_steps(ids, actions)
        finally:  # Ctrl-C may come when they have begun
            self.waiting_id += [i for i in ids if self._slots.is_stepping(i) and i not in self.waiting_id]
            self.ready_id = [i for i in self.ready_id if i not in self.waiting_id]

    def _ready_steps(self) -> list[Came]:
        """Steps that have ended: `wait_num` and more that have, fewer where the time is up, at least one."""
        if not self.waiting_id:
            raise RuntimeError("step(None) waits for environments that are stepping, and none is: give it actions")
        wanted = min(self.wait_num, len(self.waiting_id))
        until = None if self.timeout is None else time.monotonic() + self.timeout
        came: list[Came] = []
        while self.waiting_id:
            left = 0.0 if len(came) >= wanted else None if until is None else max(0.0, until - time.monotonic())
            try:
                came.append(self._finish(left))
            except TimeoutError:
                if came:
                    break
                assert self.timeout is not None
                until = time.monotonic() + self.timeout
        return came

    def _finish(self, timeout: float | None, wanted: int | None = None) -> Came:
        came = self._slots.next_step(timeout, wanted)
        (i,) = came.ids
        self.waiting_id.remove(i)
        self.ready_id.append(i)
        return came

    def _of_each(self, id: Any, call: str, message: tuple[Any, ...]) -> list[Any]:
        self._assert_is_not_closed()
        ids = rows_of(id, self.env_num, f"{type(self).__name__}.{call}()")
        for i in ids:
            assert i not in self.waiting_id, f"Cannot interact with environment {i} which is stepping now."
        answers = self._slots.ask(dict.fromkeys(ids, message)) if ids else {}
        return [answers[i] for i in ids]

    def _stacked(self, came: Came, refuse_tuples: bool = False) -> np.ndarray:
        array = self._slots.stacked_observations(came)
        if array is not None:
            return array
        observations = self._slots.observations(came)
        if refuse_tuples and isinstance(observations[0], tuple):
            raise TypeError(
                "Tuple observation space is not supported. ",
                "Please change it to array or dict space",
            )
        try:
            return np.stack(observations)
        except ValueError:  # of several shapes
            return np.array(observations, dtype=object)


class SubprocVectorEnv(_OnSlots, PeersSubprocVectorEnv):
    """Steps environments in worker processes, one for each.

    Takes the place of `tianshou.env.SubprocVectorEnv`, and is one: its arguments, methods and results. Unlike it:

    - observations, rewards and actions cross in shared memory where they are arrays of their space's dtype, and are what
      the environment returned;
    - an environment's exception is raised here, with its environment and the worker's traceback; a worker that dies is a
      `shoal.WorkerDied`, or a new one with `on_fault="restart"`; close() works then and always;
    - workers see no GPU unless `worker=shoal.WorkerOptions(gpu="own")` says so, and have one thread each for OpenMP and kin;
    - no `if __name__ == "__main__":` is needed.

    Attributes:
        workers: one an environment, with the methods of tianshou's EnvWorker, and its `process`.
        ready_id, waiting_id: environments that take an action, and those whose step no step() has returned yet.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        wait_num: int | None = None,
        timeout: float | None = None,
        share_memory: bool = False,
        context: Any = None,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker: WorkerOptions | None = None,
    ) -> None:
        """See the peer's; what comes by keyword alone is Shoal's own.

        Args:
            env_fns: a function for each environment. Lambdas, closures and what `__main__` defines are fine.
            share_memory: observations get the dtypes of their space, as in the peer's shared memory. All cross in shared
                memory either way.
            context: "forkserver", which is also what None means, "spawn" or "fork", or a context of multiprocessing. "fork" gives
                way to "forkserver", with a warning that names the cause, where it would break.
            num_workers: so many processes share the environments; by default each has one of its own.
            on_fault: "restart" makes a new environment in the place of one that was lost (its process killed, or an
                exception): its episode ends as one cut short, with `info["fault"]`, a `shoal.Fault`. "raise" raises. A
                `shoal.FaultPolicy` also sets deadlines and limits.
            worker: how worker processes are set up.

        Raises:
            TypeError: for environments where functions are needed, and for what cannot be sent to a worker.
        """
        _OnSlots.__init__(
            self,
            env_fns,
            wait_num,
            timeout,
            cast=bool(share_memory),
            context=context,
            num_workers=num_workers,
            on_fault=on_fault,
            worker=worker,
        )


class ShmemVectorEnv(_OnSlots, PeersShmemVectorEnv):
    """SubprocVectorEnv whose observations have the dtypes of their space: takes the place of `tianshou.env.ShmemVectorEnv`, and is
    one. Observations are copies, the arrays in dictionaries too, which the peer's are not."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker: WorkerOptions | None = None,
    ) -> None:
        """See SubprocVectorEnv."""
        _OnSlots.__init__(
            self,
            env_fns,
            wait_num,
            timeout,
            cast=True,
            context=None,
            num_workers=num_workers,
            on_fault=on_fault,
            worker=worker,
        )


def _method_of(context: Any, who: str) -> str:
    """How the workers start, for the launcher."""
    method = context.get_start_method() if isinstance(context, BaseContext) else context
    if method is not None and method not in multiprocessing.get_all_start_methods():
        raise ValueError(f"{who}(context=…): cannot find context for {method!r}")
    return {None: "auto", "forkserver": "auto"}.get(method, method)
