"""`torchrl.envs.ParallelEnv` on Shoal's engine: environments in worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torchrl._utils
from torchrl.envs import EnvBase, EnvCreator
from torchrl.envs import ParallelEnv as PeersParallelEnv
from torchrl.envs.batched_envs import _dispatch_caller_parallel, _PEnvMeta
from torchrl.envs.common import _EnvPostInit

from shoal.compat.arguments import factory_of, policy_of, positive, worker_options
from shoal.compat.torchrl.buffers import Buffer, event_of, finish_writes, leaves_of, portrait_of
from shoal.compat.torchrl.channels import Channel, WorkerProcess
from shoal.compat.torchrl.serial_env import SerialEnv
from shoal.compat.torchrl.slots import NOTHING, STEP, STEP_AND_MAYBE_RESET
from shoal.compat.torchrl.team import Team, started
from shoal.ipc.tensors import share_memory_
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["ParallelEnv"]

"""The peer waits for ever for environments to be built."""


class _Meta(_PEnvMeta):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """As the peer's; lambdas stay as they are, since workers take them."""
        kwargs.pop("auto_wrap_envs", None)
        if kwargs.pop("serial_for_single", False) and (kwargs.get("num_workers") or args[0]) == 1:
            for name in ("mp_start_method", "metadata_from_workers", "num_processes", "on_fault", "worker"):
                kwargs.pop(name, None)
            return SerialEnv(*args, **kwargs)
        return _EnvPostInit.__call__(cls, *args, **kwargs)


class ParallelEnv(PeersParallelEnv, metaclass=_Meta):
    """Steps environments in worker processes, one for each.

    Takes the place of `torchrl.envs.ParallelEnv`, and is one: its arguments, methods and results. Unlike it:

    - a step rings all workers by one word of shared memory and sleeps until the last is done: no pipe is written, and no core spins;
    - no environment is built in this process: a worker tells the specs;
    - GymEnvs over Box observations write their rows without a TensorDict each;
    - an environment's exception is raised here, with its environment and the worker's traceback; a worker that dies is a
      `shoal.WorkerDied`, or a new one with `on_fault="restart"`; close() works then and always;
    - workers see no GPU unless `worker=shoal.WorkerOptions(gpu="own")` says so;
    - lambdas, closures and what `__main__` defines are sent as they are, and no `if __name__ == "__main__":` is needed.

    Attributes:
        faults: what the last step lost, a `shoal.Fault` by environment; empty where it lost nothing.
    """

    faults: dict[int, Fault]
    num_threads: int | None
    _share_memory: bool
    _events: Any

    def __init__(
        self,
        num_workers: int,
        create_env_fn: Callable[..., EnvBase] | Sequence[Callable[..., EnvBase]],
        *,
        num_processes: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker: WorkerOptions | None = None,
        **peers: Any,
    ) -> None:
        """See the peer's; what is named here beside the first two is Shoal's own.

        Args:
            num_workers: how many environments there are.
            num_processes: so many processes share them; by default each has one of its own. Those of one process draw from one
                torch generator.
            on_fault: "restart" makes a new environment in the place of one that was lost (its process killed, or an
                exception): its step ends its episode, `done` and `truncated`, with reward 0 and the observation before, and
                `faults` and a warning tell of it. The new one's seed follows from the one that `set_seed` gave the lost one. Where
                one is lost in a call of another kind (a step of some environments alone, or with data that is no tensor; a reset; an
                attribute), that call raises. "raise" raises always. A `shoal.FaultPolicy` also sets deadlines and limits.
            worker: how worker processes are set up.
            peers: keyword arguments of `torchrl.envs.ParallelEnv`.

        Raises:
            TypeError, RuntimeError: as the peer, for functions that cannot be sent to a worker, and for environments where functions
                are needed.
            what an environment raised while it was built.
        """
        _check_makers(create_env_fn)
        self.__dict__["_shoal_options"] = worker_options(
            worker, "ParallelEnv", "a collector takes a row of every environment at every step"
        )
        self.__dict__["_shoal_faults"] = policy_of(
            on_fault, "ParallelEnv", "a collector takes a row of every environment at every step"
        )
        self.__dict__["_shoal_processes"] = (
            None if num_processes is None else positive(num_processes, "ParallelEnv(num_processes=…)")
        )
        self.__dict__["_shoal_team"] = None
        self.__dict__["faults"] = {}
        super().__init__(num_workers, create_env_fn, **peers)

    def stats(self) -> dict[str, Any]:
        """See `shoal.VectorEnv.stats()`. Starts the workers where none are."""
        return self._running().stats()

    def health(self) -> list[dict[str, Any]]:
        """See `shoal.VectorEnv.health()`. Starts the workers where none are."""
        return self._running().health()

    # What the peer does with processes, pipes and flags.

    def _get_metadata(self, create_env_fn: list[Callable[..., Any]], create_env_kwargs: list[dict[str, Any]]) -> None:
        wanted = [0] if self._single_task else list(range(self.num_workers))
        if all(isinstance(create_env_fn[i], EnvCreator) for i in wanted):
            super()._get_metadata(create_env_fn, create_env_kwargs)
            return
        makers, kwargs = [create_env_fn[i] for i in wanted], [create_env_kwargs[i] for i in wanted]
        team = self._started(makers, kwargs, [None] * len(wanted), 1)
        try:
            described = team.ask(dict.fromkeys(range(len(wanted)), ("metadata", None)))
        finally:
            team.close()
        self._set_metadata(described[0] if self._single_task else [described[i] for i in range(len(wanted))])

    def _create_td(self) -> None:
        shared = self._share_memory
        self._share_memory = False  # it is to lie in Shoal's memory, which takes no descriptors
        try:
            super()._create_td()
        finally:
            self._share_memory = shared
        if self._use_buffers and not self._memmap:
            for leaf in leaves_of(self.shared_tensordict_parent):
                share_memory_(leaf)

    def _start_workers(self) -> None:
        timeout = torchrl._utils.BATCHED_PIPE_TIMEOUT
        threads = torch.get_num_threads()
        if self.num_threads is None:
            self.num_threads = max(1, threads - self.num_workers)
        torch.set_num_threads(self.num_threads)
        try:
            team = self._started(
                self.create_env_fn, self.create_env_kwargs, self._described_buffers(), self._shoal_processes
            )
        except BaseException as error:
            torch.set_num_threads(threads)
            if not self._metadata_from_workers:
                raise
            raise RuntimeError(f"ParallelEnv worker failed during metadata construction:\n{error}") from error
        self.__dict__["_shoal_team"] = team
        self.BATCHED_PIPE_TIMEOUT = timeout
        self._timeout = self.shutdown_timeout
        self.parent_channels = Channel.of_all(team, timeout)
        method = _method(self._mp_start_method)
        self._workers = [WorkerProcess(pid, i, self.daemon, method) for i, pid in enumerate(team.pids())]
        self._events = [None] * self.num_workers
        self.event = event_of(self.shared_tensordict_parent) if self._use_buffers else None
        try:
            if self._metadata_from_workers:
                told = team.ask(dict.fromkeys(range(self.num_workers), ("metadata", None)))
                self._set_worker_metadata([told[i] for i in range(self.num_workers)])
        except BaseException:
            self._drop_team()
            torch.set_num_threads(threads)
            raise
        self.is_closed = False
        self.set_spec_lock_()

    def _wait_for_workers(self, workers_range: Any) -> None:
        finish_writes(self.event)
        Channel.flush(self.parent_channels[:1])

    def _shutdown_workers(self) -> None:
        if self.is_closed:
            raise RuntimeError(
                f"calling {type(self).__name__}._shutdown_workers only allowed when env.is_closed = False"
            )
        self._drop_team()
        if self._use_buffers:
            del self.shared_tensordicts, self.shared_tensordict_parent

    def _drop_team(self) -> None:
        team, self.__dict__["_shoal_team"] = self._shoal_team, None
        try:
            if team is not None:
                team.close(timeout=self.shutdown_timeout)
        finally:
            del self._workers, self.parent_channels
            self._events = self.event = None

    # The way of nearly all steps: all environments, and nothing that is not in the buffers.

    @torch.no_grad()
    def step_and_maybe_reset(self, tensordict: Any) -> tuple[Any, Any]:
        if not self._is_plain(tensordict):
            with self._exchange():
                both: tuple[Any, Any] = super().step_and_maybe_reset(tensordict)
            return both
        shared = self.shared_tensordict_parent
        shared.update_(tensordict, keys_to_update=self._env_input_keys, non_blocking=self.non_blocking)
        self._carry_out(STEP_AND_MAYBE_RESET)
        excluded = self._get_collector_next_keys_to_exclude()
        following = self._shared_tensordict_parent_next
        if excluded:
            following = following.exclude(*excluded)
        following, root = following.clone(), self._shared_tensordict_parent_root.clone()
        if self.device is None:
            following.clear_device_()
            root.clear_device_()
        tensordict.set("next", following)
        return tensordict, root

    @torch.no_grad()
    def _step(self, tensordict: Any) -> Any:
        if not self._is_plain(tensordict):
            with self._exchange():
                return super()._step(tensordict)
        shared = self.shared_tensordict_parent
        shared.update_(tensordict, keys_to_update=list(self._env_input_keys), non_blocking=self.non_blocking)
        self._carry_out(STEP)
        return shared.get("next").named_apply(
            self.select_and_clone, nested_keys=True, filter_empty=True, device=self.device
        )

    def _is_plain(self, tensordict: Any) -> bool:
        """Whether all that this step needs lies in the buffers, on the caller's device; starts the workers."""
        if self._owns_workers and self.is_closed:
            self.start()
        if not self._use_buffers or self.is_closed or self._non_tensor_keys:
            return False
        if "_step" in tensordict.keys() or "next" in tensordict.keys():
            return False
        shared = self.shared_tensordict_parent.device
        return bool(shared == self.device or self.device is None)

    def _carry_out(self, order: int) -> None:
        team = self._running()
        orders = np.full(team.num_envs, order, np.int64)
        if len(self._worker_indices) < team.num_envs:  # of a view
            orders[:] = NOTHING
            orders[self._worker_indices] = order
        before = None
        if self._shoal_faults.on_fault == "restart":
            before = self._shared_tensordict_parent_root.select(*self._env_obs_keys, strict=False).clone()
        finish_writes(self.event)
        try:
            lost = team.carry_out(orders, self.BATCHED_PIPE_TIMEOUT)
        except TimeoutError as error:
            raise RuntimeError(
                f"Failed to run all workers within the {self.BATCHED_PIPE_TIMEOUT} sec time limit. This threshold can be "
                f"increased via the BATCHED_PIPE_TIMEOUT env variable. {error}"
            ) from error
        self.__dict__["faults"] = lost
        if lost:
            self._end_episodes(lost, before)

    def _end_episodes(self, lost: Mapping[int, Fault], before: Any) -> None:
        """The step of environments that were lost ends their episodes: reward 0, and the observation that was at the root `before`
        it. A new one's first is there now."""
        for i, fault in lost.items():
            warnings.warn(f"environment {i} was lost, and a new one is in its place: {fault.message}", stacklevel=4)
            if i not in self._worker_indices:
                continue
            place = self._worker_indices.index(i)
            following = self.shared_tensordicts[place].get("next")
            following.update_(before[place])
            for key in self.reward_keys:
                following.get(key).zero_()
            for key in self.done_keys:
                name = key if isinstance(key, str) else key[-1]
                following.get(key).fill_(name in ("done", "truncated"))

    # What the peer guards by a look at its processes, and what it leaves half done where it is interrupted.

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """Where it fails, what it has sent and not taken is no later call's."""
        try:
            yield
        except BaseException:
            Channel.forget(self.__dict__.get("parent_channels", ()))
            raise

    def _reset(self, tensordict: Any, **kwargs: Any) -> Any:
        with self._exchange():
            return super()._reset(tensordict, **kwargs)

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        with self._exchange():
            following: int | None = super().set_seed(seed, static_seed)
            return following

    def state_dict(self) -> OrderedDict[str, Any]:
        self._running()
        with self._exchange():
            state: OrderedDict[str, Any] = super().state_dict()
            return state

    def __setitem__(self, item: Any, source: Any) -> None:
        with self._exchange():
            super().__setitem__(item, source)

    def __getattr__(self, attr: str) -> Any:
        found = super().__getattr__(attr)
        return _Attribute(found.attr, self) if type(found) is _dispatch_caller_parallel else found

    def load_state_dict(self, state_dict: OrderedDict[str, Any], **kwargs: Any) -> None:
        team = self._running()
        own = [state_dict[f"worker{i}"] if "worker0" in state_dict else state_dict for i in range(self.num_workers)]
        team.ask({i: ("load_state_dict", state) for i, state in zip(self._worker_indices, own, strict=True)})

    def _running(self) -> Team:
        if self._owns_workers and self.is_closed:
            self.start()
        elif self.is_closed or self._shoal_team is None or self._shoal_team.closed:
            self.is_closed = True
            raise RuntimeError(
                "Cannot use an indexed batched environment view after its parent environment has been closed."
            )
        team: Team = self._shoal_team
        return team

    def _described_buffers(self) -> list[Buffer | None]:
        if not self._use_buffers:
            if self._shoal_faults.on_fault != "raise":
                raise ValueError(
                    "ParallelEnv(on_fault='restart') needs environments whose specs are of fixed size, and use_buffers: the episode "
                    "of a lost one ends with its last observation, which lies in them"
                )
            return [None] * self.num_workers
        keys = list(self._selected_reset_keys), list(self._selected_step_keys), list(self._non_tensor_keys)
        return [Buffer(portrait_of(self.shared_tensordicts[i]), *keys) for i in range(self.num_workers)]

    def _started(
        self,
        makers: Sequence[Any],
        kwargs: Sequence[dict[str, Any]],
        buffers: Sequence[Buffer | None],
        processes: int | None,
    ) -> Team:
        return started(
            makers,
            kwargs,
            buffers,
            num_processes=len(makers) if processes is None else min(processes, len(makers)),
            context={"forkserver": "auto"}.get(_method(self._mp_start_method), _method(self._mp_start_method)),
            threads=self.num_sub_threads,
            faults=self._shoal_faults,
            options=self._shoal_options,
        )


class _Attribute(_dispatch_caller_parallel):
    """An attribute of the environments, which is called or listed."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.parallel_env._exchange():
            return super().__call__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return _Attribute(super().__getattr__(name).attr, self.parallel_env)


def _check_makers(given: Any) -> None:
    several = isinstance(given, Collection) and not callable(given) and not isinstance(given, str)
    for i, maker in enumerate(given if several else [given]):
        name = f"create_env_fn[{i}]" if several else "create_env_fn"
        if isinstance(maker, EnvBase):
            kind = type(maker).__name__
            raise TypeError(
                f"ParallelEnv() takes functions that make environments, {name} is an environment (a {kind}). Each environment is "
                f"made where it runs: write  lambda: {kind}(…)"
            )
        factory_of(maker, "ParallelEnv", name)


def _method(given: str | None) -> str:
    if given is None:
        return "forkserver"
    if given not in multiprocessing.get_all_start_methods():
        raise ValueError(f"cannot find context for {given!r}")
    return given
