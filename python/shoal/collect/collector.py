"""`shoal.Collector`: batches of experience, one after the other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import _core
from shoal.collect.actors import OUTPUTS, Actor, RandomActor, actor_of
from shoal.collect.trajectories import split_trajectories as split
from shoal.serve.structure import tree_map
from shoal.vector.make import make_vec

if TYPE_CHECKING:
    from shoal.vector.faults import FaultPolicy
    from shoal.vector.options import WorkerOptions
    from shoal.vector.wrappers import Wrapper

__all__ = ["Collector"]

_SEEDS = 2**31
"""What every environment's own generator takes."""


class Collector:
    """Steps environments with a policy and hands out what happened, in batches of `frames_per_batch` rows.

        with shoal.Collector("CartPole-v1", policy, num_envs=16, frames_per_batch=1024, total_frames=100_000) as collector:
            for batch in collector:
                loss = train_on(batch)
                collector.update_weights()

    A batch is a dict of arrays `[steps, num_envs, …]` (a row is one step of one environment, a frame):

    - `obs`: what the policy saw, as the observation space has it (dicts and tuples for such spaces); `next_obs`, where asked
      for: where the step led, before any reset.
    - `action`: what the policy chose. Those of a Box of floats are clipped to its bounds for the environment, not here.
    - `reward` (float32), `terminated`, `truncated`, and `valid`: False where the row is no transition, which only a fault
      makes. Environments are reset in the same step in which an episode ends.
    - `log_prob`, `value` (float32): where the policy gives them; NaN in rows of `init_random_frames`.
    - `is_first`: whether `obs` is the first observation of an episode, where a recurrent policy begins anew.
    - `episode_id` (int64): the environment's episode, counted from 0, times `num_envs`, plus the environment; `env_id`.
    - `policy_version`: of the weights that chose the action; `staleness`: how many versions newer the weights are by now.

    The arrays lie in one block of shared memory, which is used again when the last view of them is gone. They are the
    caller's: nothing writes to them later, and `shoal.multiprocessing` sends them to other processes without a copy.

    The same seed, environments and policy give the same batches, whatever `num_workers` and `backend` are.

    Attributes:
        seed: that was given, or drawn.
        frames: rows handed out so far.
        num_envs, total_frames, frames_per_batch: as given; total_frames is None without an end.
        single_observation_space, single_action_space: of one environment.

    Threads: one at a time.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] | Sequence[Any],
        policy: Any,
        *,
        num_envs: int = 1,
        frames_per_batch: int,
        total_frames: int | None = None,
        seed: int | None = None,
        next_obs: bool = False,
        init_random_frames: int = 0,
        max_frames_per_traj: int | None = None,
        split_trajectories: bool = False,
        output: str = "auto",
        num_workers: int | None = None,
        backend: str = "auto",
        context: str = "auto",
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Wrapper] | None = None,
        on_fault: str | FaultPolicy = "raise",
        timeout: float | None = None,
        worker: WorkerOptions | None = None,
    ) -> None:
        """Builds the environments.

        Args:
            env: as `shoal.make_vec` takes it: an id, a class, a factory, or a list of them.
            policy: the directory of a run, or the name of a preset (a new network): C++ networks. A torch module or any
                other callable: `policy(obs)` for all environments at once, which returns actions, or (action, log_prob,
                value), or a dict of these; modules get tensors, others arrays. With an `initial_state(num_envs)` it is
                called as `policy(obs, state, is_first)` and returns a dict with the next "state" as well; batches then have
                the state they begin with. A `shoal.ModelService` with one model, or one of its models.
            num_envs: how many environments.
            frames_per_batch: rows of a batch, over all environments: a multiple of num_envs.
            total_frames: rows after which the iteration ends, a multiple of num_envs; the last batch may be shorter. None:
                never.
            seed: environment i is reset with seed + i. C++ networks, and what policies draw from the global generators of
                torch and NumPy, depend on it, too.
            next_obs: whether batches have `next_obs`.
            init_random_frames: so many rows, rounded up to whole steps, have samples of the action space as their actions.
            max_frames_per_traj: episodes are truncated after so many steps, if they do not end before.
            split_trajectories: batches are `[trajectories, longest, …]` instead, padded with zeros where `valid` is False:
                what each episode has in the batch is a row. This copies.
            output: "numpy" or "torch"; "auto" is torch for torch modules.
            num_workers, backend, context, env_kwargs, wrappers, on_fault, timeout, worker: as `shoal.make_vec` takes them.

        Raises:
            TypeError, ValueError: for arguments that do not fit, with what would.
        """
        self.num_envs = len(env) if isinstance(env, list | tuple) else num_envs
        self.frames_per_batch = _frames("frames_per_batch", frames_per_batch, self.num_envs)
        self.total_frames = None if total_frames is None else _frames("total_frames", total_frames, self.num_envs)
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**63):
            raise ValueError(f"seed= takes a number from 0 to 2**63 - 1, got {seed!r}")
        if init_random_frames < 0:
            raise ValueError(f"init_random_frames= takes a number of rows, got {init_random_frames!r}")
        if output not in ("auto", "numpy", "torch"):
            raise ValueError(f"output= takes 'auto', 'numpy' or 'torch', got {output!r}")
        self.seed = secrets.randbelow(_SEEDS) if seed is None else seed
        self.frames = 0
        self._next_obs = next_obs
        self._random_frames = init_random_frames
        self._split = split_trajectories
        self._seconds = 0.0
        self._batches = 0
        self._begun = False
        self._envs = make_vec(
            env,
            self.num_envs,
            autoreset_mode="same_step",
            copy=False,
            max_episode_steps=_limit(env, max_frames_per_traj),
            num_workers=num_workers,
            backend=backend,
            context=context,
            env_kwargs=env_kwargs,
            wrappers=wrappers,
            on_fault=on_fault,
            timeout=timeout,
            worker=worker,
        )
        try:
            self.single_observation_space = self._envs.single_observation_space
            self.single_action_space = self._envs.single_action_space
            self._engine = _core.collect.Collector(self._envs._engine, self.single_observation_space, timeout)
            self._actor: Actor = actor_of(policy, self._envs._engine, self.num_envs, self.seed)
            self._random = RandomActor(self._envs.action_space, self.seed)
        except BaseException:
            self._envs.close()
            raise
        self._as_tensors = output == "torch" or (output == "auto" and self._actor.wants_tensors)

    # Batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        """The next batch.

        Raises:
            StopIteration: after `total_frames`.
            shoal.WorkerDied, TimeoutError: and whatever environments and policy raise. Only reset() and close() are of use
                then.
        """
        frames = self.frames_per_batch
        if self.total_frames is not None:
            frames = min(frames, self.total_frames - self.frames)
            if frames <= 0:
                raise StopIteration
        start = time.perf_counter()
        if not self._begun:
            self.reset(self.seed)
        batch = self._collect(frames // self.num_envs)
        self.frames += frames
        self._batches += 1
        self._seconds += time.perf_counter() - start
        return batch

    def reset(self, seed: int | None = None) -> None:
        """Resets all environments, environment i with `seed + i` (None: its generator goes on). What was counted stays.

        The first batch does so by itself. After a failure of environments or policy it makes the collector usable again.
        """
        seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        self._engine.reset(seeds)
        self._actor.restart()
        self._begun = True

    def _collect(self, steps: int) -> dict[str, Any]:
        experience = self._engine.allocate(steps, self._next_obs, True, True)
        arrays = self._engine.arrays(experience)
        missing = max(0, self._random_frames - self.frames)
        random = min(steps, -(-missing // self.num_envs))
        if random:
            with self._random.acting(arrays) as actor:
                self._engine.collect(actor, experience, 0, random, self._actor.version)
        with self._actor.acting(arrays) as actor:
            self._engine.collect(actor, experience, random, steps - random, self._actor.version)
        for name in OUTPUTS:
            if name not in self._actor.outputs:
                del arrays[name]
        arrays["staleness"] = self._actor.version - arrays["policy_version"]
        return self._finished(arrays | self._actor.extras())

    def _finished(self, arrays: dict[str, Any]) -> dict[str, Any]:
        state = arrays.pop("state", None)
        if self._split:
            arrays = split(arrays)
        if self._as_tensors:
            import torch

            arrays = {name: tree_map(torch.from_numpy, value) for name, value in arrays.items()}
        return arrays if state is None else arrays | {"state": state}

    # Weights

    @property
    def policy_version(self) -> int:
        """Of the policy's weights: how often they were updated; of a model service, its own number."""
        return self._actor.version

    def update_weights(self, weights: Mapping[str, Any] | None = None) -> int:
        """New weights for the batches that follow.

        Args:
            weights: of a C++ network, arrays or tensors under the names of a run's policy.safetensors; of a torch module (or
                what else has a `load_state_dict`) a state_dict; of a ModelService, what its update() takes. None: the
                policy, which lives in this process, has been changed already; its version is counted.

        Returns:
            their version.

        Raises:
            ValueError: for weights that do not fit a C++ network or a served model, which keeps the old ones.
        """
        self._actor.update_weights(weights)
        return self._actor.version

    # Where it stands

    def stats(self) -> dict[str, Any]:
        """Counts so far: `frames`, `batches`; of them rows that are not valid, by cause: `lost_to_faults`,
        `lost_to_resets`; `episodes` that ended, `mean_return` and `mean_length` of the last 100 of them (None before the first);
        `seconds` spent in collecting and `frames_per_second`; `envs`, as `shoal.VectorEnv.stats()`."""
        ended = self._engine.episodes
        return {
            "frames": self.frames,
            "total_frames": self.total_frames,
            "batches": self._batches,
            "lost_to_faults": self._engine.faults,
            "lost_to_resets": self._engine.resets,
            "episodes": ended,
            "mean_return": self._engine.mean_return if ended else None,
            "mean_length": self._engine.mean_length if ended else None,
            "policy_version": self._actor.version,
            "seconds": self._seconds,
            "frames_per_second": self.frames / self._seconds if self._seconds else 0.0,
            "envs": self._envs.stats(),
        }

    def state_dict(self) -> dict[str, Any]:
        """All that the next batch depends on: environments, counts, generators, and a C++ network's weights; those of other
        policies are the caller's. It can be pickled, and loaded into another collector with the same arguments.

        Raises:
            TypeError: for environments that support no snapshots, with the reason.
        """
        return {
            "seed": self.seed,
            "frames": self.frames,
            "batches": self._batches,
            "begun": self._begun,
            "actor": self._actor.state(),
            "random": self._random.state(),
            "engine": self._engine.state() if self._begun else None,
            "envs": self._envs._engine.snapshot(list(range(self.num_envs))) if self._begun else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another collector stood, with the same batches.

        Raises:
            ValueError: for the state of other environments.
        """
        if state["begun"]:
            self.reset(state["seed"])
            self._envs._engine.restore(list(range(self.num_envs)), state["envs"])
            self._engine.load_state(state["engine"])
        self.seed = state["seed"]
        self.frames = state["frames"]
        self._batches = state["batches"]
        self._begun = state["begun"]
        self._actor.load_state(state["actor"])
        self._random.load_state(state["random"])

    def close(self) -> None:
        """Ends the environments. May be called again. Batches that were handed out stay."""
        self._envs.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        end = "" if self.total_frames is None else f" of {self.total_frames:,}"
        return f"<Collector of {self.num_envs} environments, {self.frames:,}{end} frames>"


def _frames(name: str, frames: Any, num_envs: int) -> int:
    if not isinstance(frames, int | np.integer) or isinstance(frames, bool) or frames < 1:
        raise ValueError(f"{name}= takes a number of rows, got {frames!r}")
    if frames % num_envs:
        below = frames - frames % num_envs
        near = f"{below} or {below + num_envs}" if below else f"{num_envs}"
        raise ValueError(
            f"{name}={frames} is no multiple of num_envs={num_envs}, of which each has a row a step: try {near}"
        )
    return int(frames)


def _limit(env: Any, wanted: int | None) -> int | None:
    """The time limit that make_vec is to set: an id's own where that is shorter, since it is replaced."""
    if wanted is None or not isinstance(env, str):
        return wanted
    import gymnasium

    from shoal.envs import register

    register()
    own = gymnasium.spec(env).max_episode_steps
    return wanted if own is None else min(own, wanted)
