"""Collectors that are actors of Ray, whose batches come through its object store."""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, RayActorError

from shoal.collect.trajectories import split_trajectories as split
from shoal.collect.weights import Layout, layout_of
from shoal.compat.ray.arguments import actor_options, check_collector_options, even_share
from shoal.compat.ray.collector_actor import CollectorActor, Described, Filled, Share, Weights
from shoal.compat.ray.resources import end_actors
from shoal.errors import Error
from shoal.reprs import never_raises
from shoal.serve.service import ModelService
from shoal.serve.structure import tree_map
from shoal.vector import registrations

__all__ = ["RayCollector"]

_OF_ENVS = ("state", "next_state")
"""Entries of a batch without an axis of steps."""


class RayCollector:
    """Actors that each hold a `shoal.Collector`, and hand out what they collect as batches in Ray's object store.

        collector = shoal.compat.ray.RayCollector(
            "CartPole-v1", policy, num_envs=32, frames_per_batch=1024, num_collectors=4, remote_configs={"num_cpus": 1},
        )
        with collector:
            for batch in collector:
                loss = train_on(batch)
                collector.update_weights()

    Batches have the arrays of `shoal.Collector`'s, `[steps, envs, …]`, environments and episodes counted over all
    collectors. They are read-only views of the object store, whose memory all processes of a node share:
    `torch.tensor(batch["obs"])` copies one.

    Without `sync` each batch is of one collector, in the order in which they are ready. A collector begins the next one as
    soon as one of its is taken, with the weights that are the newest then. With `sync` a batch is of all collectors, which
    begin when it is asked for.

    An actor that dies is started again by Ray and does again what it was at, with environments that begin anew. One that
    Ray does not start again is left out, with a warning; with `sync` that is an error.

    Attributes:
        frames: rows handed out so far.
        policy_version: of the newest weights: how often they were updated.
        num_envs, num_collectors, frames_per_batch, total_frames, sync, max_in_flight, seed: as given.
        single_observation_space, single_action_space: of one environment.

    Threads: one at a time.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] | Sequence[Any],
        policy: Any,
        *,
        num_collectors: int,
        num_envs: int | None = None,
        frames_per_batch: int,
        total_frames: int | None = None,
        remote_configs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        sync: bool = False,
        update_after_each_batch: bool = False,
        max_in_flight: int | None = None,
        seed: int | None = None,
        init_random_frames: int = 0,
        split_trajectories: bool = False,
        **options: Any,
    ) -> None:
        """Asks Ray for the actors, and waits for the first of them. Ray is initialised where it is not.

        Args:
            env: as `shoal.make_vec` takes it: an id, a class, a factory, or a list of them, which is shared out.
            policy: as `shoal.Collector` takes it, but a ModelService. Each actor has a copy. A path has to lead to the same
                run on all nodes.
            num_collectors: how many actors.
            num_envs: environments of all collectors, a multiple of num_collectors; by default one each.
            frames_per_batch: rows of a batch: with `sync` of all environments, else of those of one collector, and a
                multiple of their number.
            total_frames: rows after which the iteration ends, with the batch that reaches them. None: never.
            remote_configs: options of Ray for the actors, as `ray.remote` takes them: num_cpus, num_gpus, resources, memory,
                scheduling_strategy, runtime_env, max_restarts, …; or a list with those of each. By default
                num_cpus=1, and max_restarts=-1 and max_task_retries=-1: an actor is started again for as long as there is
                room for it.
            sync: whether a batch is of all collectors.
            update_after_each_batch: whether update_weights() is called by itself before each batch but the first.
            max_in_flight: batches that are under way, or ready and not taken, over all collectors, at most. With fewer than
                num_collectors these take turns; with more each begins the next one before the last is taken, with
                weights that are as much older. By default num_collectors. Not with `sync`.
            seed: environment i is reset with seed + i. By default drawn.
            init_random_frames: so many rows of all collectors together, rounded up to the same number of whole steps of
                each, have samples of the action space as their actions.
            split_trajectories: as of `shoal.Collector`.
            options: further ones of `shoal.Collector`, of each: next_obs, action_mask, policy_batch, wrappers, env_kwargs,
                on_fault, …. `num_workers` is by default as many as the actor has CPUs of Ray's (num_cpus), and with one
                it steps its environments itself.

        Raises:
            TypeError, ValueError: for arguments that do not fit, with what would.
            ray.exceptions.RayTaskError: with what environments or policy raised in an actor, of whose type it is, too.
        """
        configs = actor_options(num_collectors, remote_configs)
        check_collector_options(options)
        if isinstance(policy, ModelService):
            raise TypeError(
                "a ModelService is of one host: give RayCollector a module, a callable or a run's directory"
            )
        factories = list(env) if isinstance(env, list | tuple) else None
        if factories is not None:
            num_envs = len(factories)
        self.num_envs = num_collectors if num_envs is None else num_envs
        each = even_share("num_envs", self.num_envs, num_collectors, ", the number of collectors")
        of_batch = self.num_envs if sync else each
        even_share("frames_per_batch", frames_per_batch, of_batch, ", the environments that a batch is of")
        if total_frames is not None:
            even_share("total_frames", total_frames, 1)
        if sync and max_in_flight is not None:
            raise ValueError("max_in_flight= is of sync=False: with sync=True each collector has one batch under way")
        self.num_collectors = num_collectors
        self.max_in_flight = num_collectors if max_in_flight is None else even_share("max_in_flight", max_in_flight, 1)
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.sync = sync
        self.seed = secrets.randbelow(2**31) if seed is None else seed
        self.frames = 0
        self.policy_version = 0
        self._policy = policy
        self._split = split_trajectories
        self._update_each = update_after_each_batch
        self._weights: Any = None  # of the object store
        self._layout: Layout | None = None
        self._batches = 0
        self._lost = 0
        self._seconds = 0.0
        self._staleness = 0  # over all rows
        self._due: dict[
            Any, int
        ] = {}  # batches that are under way, or ready, in the order in which they were asked for
        self._asked: dict[int, int] = {}  # of each collector how many batches
        self._told: dict[int, Filled] = {}  # of each collector the last that it said
        self._episodes: dict[int, dict[tuple[str, int], int]] = {}  # of each, of its actors one after the other
        if init_random_frames < 0:
            raise ValueError(f"init_random_frames= takes a number of rows, got {init_random_frames!r}")
        options["init_random_frames"] = -(-init_random_frames // num_collectors)
        if not ray.is_initialized():
            ray.init()
        self._sent = ray.put(policy)  # for actors that are started again, too
        registered = registrations.take()
        remote = ray.remote(CollectorActor)
        self._actors: dict[int, Any] = {}
        for place, config in enumerate(configs):
            first = place * each
            share = Share(
                env if factories is None else factories[first : first + each],
                first,
                each,
                self.num_envs,
                frames_per_batch // num_collectors if sync else frames_per_batch,
                self.seed,
                options,
                registered,
            )
            self._actors[place] = remote.options(**config).remote(share, self._sent)
        try:
            (ready, *_), _ = ray.wait([actor.describe.remote() for actor in self._actors.values()])
            described: Described = ray.get(ready)
        except BaseException:
            self.close()
            raise
        self.single_observation_space = described.single_observation_space
        self.single_action_space = described.single_action_space

    # Batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        """The next batch.

        Raises:
            StopIteration: after `total_frames`.
            shoal.Error: no collector is left, or, with `sync`, one is not.
            ray.exceptions.RayTaskError: with what environments or policy raised in an actor, of whose type it is, too.
        """
        if self.total_frames is not None and self.frames >= self.total_frames:
            raise StopIteration
        if self._update_each and self._batches:
            self.update_weights()
        begun = time.perf_counter()
        batch = self._of_all() if self.sync else self._of_first()
        batch["staleness"] = self.policy_version - batch["policy_version"]
        self._staleness += int(batch["staleness"].sum())
        self.frames += batch["reward"].size
        self._batches += 1
        self._seconds += time.perf_counter() - begun
        return split(batch) if self._split else batch

    def _of_first(self) -> dict[str, Any]:
        """That of the collector that is ready first; it begins the next one."""
        while True:
            self._order()
            if not self._due:
                raise Error("no collector is left: each has died, and Ray may not start it again (max_restarts)")
            (ready,), _ = ray.wait(list(self._due), num_returns=1)
            place = self._due.pop(ready)
            filled = self._taken(place, ready)
            if filled is not None:
                self._order(taken=filled.batch["reward"].size)
                return dict(filled.batch)

    def _of_all(self) -> dict[str, Any]:
        calls = {place: self._ask(place) for place in self._actors}
        parts = [self._taken(place, call) for place, call in calls.items()]
        if len(self._actors) < self.num_collectors:
            missing = sorted(set(range(self.num_collectors)) - self._actors.keys())
            raise Error(f"collectors {missing} are gone, and a batch with sync=True is of all {self.num_collectors}")
        batches = [filled.batch for filled in parts if filled is not None]
        if len(batches) < len(parts):
            return self._of_all()  # what was lost is collected anew, by all
        of_envs = {name: [batch.pop(name) for batch in batches] for name in _OF_ENVS if name in batches[0]}
        joined: dict[str, Any] = tree_map(lambda *arrays: np.concatenate(arrays, axis=1), *batches)
        for name, states in of_envs.items():
            joined[name] = tree_map(lambda *arrays: np.concatenate(arrays), *states)
        return joined

    def _order(self, taken: int = 0) -> None:
        """Asks collectors for batches, as many as there may be, those that have the fewest first. `taken`: rows that are not in
        `frames` yet."""
        rows = None if self.total_frames is None else self.total_frames - self.frames - taken
        left = None if rows is None else -(-rows // self.frames_per_batch)
        while self._actors and len(self._due) < self.max_in_flight and (left is None or len(self._due) < left):
            place = min(self._actors, key=self._work_of)
            self._due[self._ask(place)] = place

    def _work_of(self, place: int) -> tuple[int, int]:
        return list(self._due.values()).count(place), self._asked.get(place, 0)

    def _ask(self, place: int) -> Any:
        number = self._asked.get(place, 0)
        self._asked[place] = number + 1
        return self._actors[place].collect.remote(self._weights, number)

    def _taken(self, place: int, call: Any) -> Filled | None:
        """What a collector has filled; None where it was lost."""
        try:
            filled: Filled = ray.get(call)
        except (ActorUnavailableError, ObjectLostError):
            self._lost += 1
            return None
        except RayActorError as error:
            self._lost += 1
            if self._actors.pop(place, None) is not None:
                warnings.warn(
                    f"collector {place} is gone, and Ray does not start it again: {error}", RuntimeWarning, stacklevel=5
                )
            return None
        self._told[place] = filled
        self._episodes.setdefault(place, {})[filled.node_id, filled.pid] = filled.stats["episodes"]
        return filled

    # Weights

    def update_weights(self, weights: Mapping[str, Any] | None = None) -> int:
        """New weights for the batches that are begun from now on, put into the object store once for all collectors.

        Args:
            weights: of a C++ network, arrays or tensors under the names of a run's policy.safetensors; of a torch module (or
                what else has a `load_state_dict`) a state_dict. None: those that the policy in this process has now.

        Returns:
            their version.

        Raises:
            TypeError: for a policy without `state_dict()`, where there are no weights.
            ValueError: for weights of other names, shapes or types than those before.
        """
        if weights is None:
            give = getattr(self._policy, "state_dict", None)
            if give is None:
                raise TypeError(
                    f"update_weights(): the collectors are actors, and the policy {self._policy!r} has no state_dict() by which new "
                    "weights could reach them; give it the weights, or make it a torch module"
                )
            weights = give()
        if self._layout is None:
            self._layout = layout_of(weights)
        flat = self._layout.pack(weights)
        self.policy_version += 1
        self._weights = ray.put(Weights(self.policy_version, self._layout, flat))
        return self.policy_version

    # Where it stands

    def stats(self) -> dict[str, Any]:
        """Counts so far: `frames`, `batches`; `lost_batches`, that went with their actors or nodes; `episodes` that ended, those
        of actors that have died among them, and `mean_return` and `mean_length` of the last 100 of each collector, as it said
        them with its last batch (None before the first); `policy_version`, and `mean_staleness`: by how many versions the weights of a row were older than the newest
        when it was handed out; `in_flight`: batches that are under way, or ready and not taken; `seconds` spent in waiting for
        batches and `frames_per_second`; `collectors`: of each that is there and has said something its `number`, `pid`,
        `node_id` and `episodes`."""
        here = {place: told for place, told in sorted(self._told.items()) if place in self._actors}
        counted = [told.stats for told in self._told.values() if told.stats["episodes"]]
        return {
            "frames": self.frames,
            "total_frames": self.total_frames,
            "batches": self._batches,
            "lost_batches": self._lost,
            "episodes": sum(sum(of_actors.values()) for of_actors in self._episodes.values()),
            "mean_return": _mean(counted, "mean_return"),
            "mean_length": _mean(counted, "mean_length"),
            "policy_version": self.policy_version,
            "mean_staleness": self._staleness / self.frames if self.frames else 0.0,
            "in_flight": len(self._due),
            "seconds": self._seconds,
            "frames_per_second": self.frames / self._seconds if self._seconds else 0.0,
            "collectors": [
                {
                    "number": place,
                    "pid": told.pid,
                    "node_id": told.node_id,
                    "episodes": sum(self._episodes[place].values()),
                }
                for place, told in here.items()
            ],
        }

    def close(self) -> None:
        """Ends the actors. May be called again. Batches that were handed out stay."""
        end_actors(self._actors.values(), self._due)
        self._actors, self._due = {}, {}

    def __enter__(self) -> RayCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        end = "" if self.total_frames is None else f" of {self.total_frames:,}"
        return (
            f"<RayCollector of {self.num_collectors} actors, {self.num_envs} environments, {self.frames:,}{end} frames>"
        )


def _mean(stats: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Over collectors, each weighed by the episodes that it is the mean of."""
    weighed = [(min(each["episodes"], 100), each[name]) for each in stats]
    return sum(n * value for n, value in weighed) / sum(n for n, _ in weighed) if weighed else None
