"""`shoal.Collector`: batches of experience, one after the other."""

from __future__ import annotations

import importlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from shoal.collect.actors import check_policy
from shoal.collect.arguments import (
    check_env_kwargs,
    check_mode,
    check_steps,
    check_switch,
    check_worker_options,
    cohort_size,
    fault_policy,
    number_of_collectors,
    number_of_envs,
    output_and_device,
    random_rows,
    rows,
    rows_of_policy,
    seed_or_none,
    shares,
    time_limit,
)
from shoal.collect.board import CollectorBoard
from shoal.collect.call_gate import CallGate, in_call
from shoal.collect.source import InProcess, Raw, Source
from shoal.collect.station import Setup, check_masked
from shoal.collect.trajectories import split_trajectories as split
from shoal.reprs import never_raises
from shoal.serve.arguments import checked_timeout
from shoal.serve.in_python import is_module
from shoal.serve.structure import tree_map
from shoal.unknown_arguments import named_when_unknown
from shoal.vector.faults import FaultPolicy
from shoal.vector.forks import keep_from_children
from shoal.vector.options import WorkerOptions

if TYPE_CHECKING:
    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.collect.multi import Multi
    from shoal.vector.wrappers import Wrapper

__all__ = ["Collector"]

_STATE_PARTS = ("seed", "mode", "frames", "batches", "begun", "source")
_SEEDS = 2**31
"""What every environment's own generator takes."""


@named_when_unknown
class Collector:
    """Steps environments with a policy and hands out what happened, in batches of `frames_per_batch` rows.

        with shoal.Collector("CartPole-v1", policy, num_envs=16, frames_per_batch=1024, total_frames=100_000) as collector:
            for batch in collector:
                loss = train_on(batch)
                collector.update_weights()

    A batch is a dict of arrays `[steps, envs, …]` (a row is one step of one environment, a frame):

    - `obs`: what the policy saw, as the observation space has it (dicts and tuples for such spaces); `next_obs`, where asked
      for: where the step led, before any reset.
    - `action`: what the policy chose. Those of a Box of floats are clipped to its bounds for the environment, not here.
    - `reward` (float32), `terminated`, `truncated`, and `valid`: False where the row is no transition, which only a fault or
      `preemptive_threshold` makes. Environments are reset in the same step in which an episode ends.
    - `log_prob`, `value` (float32): where the policy gives them. With `init_random_frames` every batch has both, NaN in those
      rows, and in all of what the policy does not give.
    - `is_first`: whether `obs` is the first observation of an episode, where a recurrent policy begins anew.
    - `episode_id` (int64): the environment's episode, counted from 0, times `num_envs`, plus the environment; `env_id`.
    - `action_mask`, where one is named.
    - `policy_version`: of the weights that chose the action; `staleness`: how many versions newer the weights are by now.

    The arrays lie in one block of shared memory, which is used again when the last view of them is gone. They are the
    caller's: nothing writes to them later, and `shoal.multiprocessing` sends them to other processes without a copy.

    Modes:

    - "sync": the environments of this process, or of its workers. The policy is asked in this process.
    - "multi_sync": `num_collectors` processes, each with a share of the environments and a policy of its own; a batch is of
      all environments, and every collector writes its columns of it.
    - "multi_async": each collector collects `frames_per_batch` rows of its own environments after the other, with the
      weights that are the newest when it begins; batches come in the order in which they are ready.

    The same seed, environments and policy give the same batches, whatever `num_workers` and `backend` are; those of
    "multi_sync" are the same for any `num_collectors`, too, and those of "sync" with the same `policy_batch`.

    Attributes:
        seed: that was given, or drawn.
        frames: rows handed out so far.
        mode, num_envs, total_frames, frames_per_batch: as given; total_frames is None without an end.
        num_collectors: processes; 0 with "sync".
        single_observation_space, single_action_space: of one environment.

    Threads: one at a time; close() and update_weights() may come while another is in a call, and so may stats() in the multi
    modes. update_weights() of a C++ network may with "sync" not. What comes within a call, from a signal's handler, the policy
    or an environment, is as what comes from another thread: close() ends the call that is under way, and others raise
    RuntimeError.

    Fork: in a forked child its calls raise RuntimeError, and close() does nothing.
    """

    def __init__(
        self,
        env: str | Callable[..., Any] | Sequence[Any],
        policy: Any,
        *,
        num_envs: int | None = None,
        frames_per_batch: int,
        total_frames: int | None = None,
        mode: str = "sync",
        num_collectors: int | None = None,
        policy_batch: int | None = None,
        cohorts: int | None = None,
        preemptive_threshold: float | None = None,
        ahead: int = 2,
        seed: int | None = None,
        next_obs: bool = False,
        init_random_frames: int = 0,
        max_frames_per_traj: int | None = None,
        action_mask: str | None = None,
        split_trajectories: bool = False,
        output: str = "auto",
        device: Any = None,
        num_workers: int | None = None,
        backend: str = "auto",
        context: str = "auto",
        env_kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        frame_stack: int | None = None,
        reward_clip: tuple[float, float] | None = None,
        wrappers: Sequence[Wrapper] | None = None,
        atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
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
                the `state` they begin with, and the `next_state` of the step after them. A `shoal.ModelService` with one model, or one of its models. The processes of the
                multi modes have copies of it.
            num_envs: how many environments, over all collectors; by default 1, or as many as the list has.
            frames_per_batch: rows of a batch, over all its environments: a multiple of num_envs; with "multi_async" of the
                environments of one collector.
            total_frames: rows after which the iteration ends, a multiple of num_envs; the last batch may be shorter. None:
                never.
            mode: "sync", "multi_sync" or "multi_async".
            num_collectors: processes of the multi modes; by default one for each CPU that this process may use, at most one
                for each environment. With "multi_async" it divides num_envs.
            policy_batch: for how many environments at once the policy is asked, counted from environment 0. What a policy
                computes and draws may depend on it, and so does not on num_collectors: one that has only some of them
                asks with copies in the others' places, and drops those answers. By default 8 in the multi modes, and all
                environments with "sync". Models of a service are asked for what a collector has.
            cohorts: with "sync", environments in so many groups of one size, each with workers of its own: while those of one
                are stepped, the policy is asked for the next. What the policy computes may depend on it. None: it is asked for all
                at once, and then all are stepped.
            preemptive_threshold: with "multi_sync", a batch ends when this share of the collectors, from 0 to 1, has filled
                its rows; the others stop after the step that they are in, at least one, and their rows that are missing
                are not `valid`. What a batch then has depends on time. None: all are waited for.
            ahead: with "multi_async", batches that each collector may have beyond those that were taken, the one that it
                works at included; 1 or more.
            seed: environment i is reset with seed + i. C++ networks, and what policies draw from the global generators of
                torch and NumPy, depend on it, too.
            next_obs: whether batches have `next_obs`.
            init_random_frames: so many rows, rounded up to whole steps, have samples of the action space as their actions.
            max_frames_per_traj: episodes are truncated after so many steps, if they do not end before.
            action_mask: the part of Dict observations that says which of the Discrete actions are allowed, an array of as many
                elements, 0 where one is not. Batches then have it as `action_mask`, too; rows of init_random_frames have
                allowed actions, and a policy that chooses another one is an error. Policies find it in what they observe.
            split_trajectories: batches are `[trajectories, longest, …]` instead, padded with zeros where `valid` is False:
                what each episode has in the batch is a row. This copies.
            output: "numpy", "torch" or "tensordict" (a TensorDict, where that is installed); "auto" is torch for torch
                modules and where a device is given.
            device: where the tensors of a batch lie, as torch names it; those on a GPU are copies.
            num_workers, backend, env_kwargs, max_episode_steps, frame_stack, reward_clip, wrappers, atari: as `shoal.make_vec` takes
                them. The collectors of the multi modes
                step their environments themselves unless num_workers says otherwise, which is then of each of them.
            context: how processes start, as `shoal.make_vec` takes it.
            on_fault: with "sync", as `shoal.make_vec` takes it. In the multi modes of collectors: "raise" raises what its
                environments or policy raised, or `shoal.WorkerDied`; "restart" starts another process in the dead one's
                place, whose environments begin anew and which does again what was lost. A `shoal.FaultPolicy` says how often.
            timeout: seconds that a reset or step may take before it is a TimeoutError. With "sync" that is so with any
                on_fault, and reset() waits for the step first, as long again: `shoal.FaultPolicy(step_timeout=…)` makes a step
                that hangs a fault. In the multi modes it includes the policy, and is a fault with on_fault="restart".
            worker: how worker processes, or the processes of the multi modes, are set up.

        Raises:
            TypeError, ValueError: for arguments that do not fit, with what would.
        """
        self._gate = CallGate()
        self._updates = CallGate()
        self.num_envs = number_of_envs(env, num_envs)
        self.mode = mode
        check_mode(mode, num_collectors=num_collectors, preemptive_threshold=preemptive_threshold, ahead=ahead)
        self.num_collectors = 0 if mode == "sync" else number_of_collectors(num_collectors, self.num_envs, mode)
        shared = self.num_envs // self.num_collectors if mode == "multi_async" else self.num_envs
        self._envs_per_batch = shared
        self.frames_per_batch = rows(
            "frames_per_batch", frames_per_batch, shared, self.num_collectors if shared < self.num_envs else 0
        )
        check_steps(self.frames_per_batch, shared)
        self.total_frames = None if total_frames is None else rows("total_frames", total_frames, self.num_envs)
        seed = seed_or_none(seed)
        check_switch("next_obs", next_obs)
        check_switch("split_trajectories", split_trajectories)
        check_worker_options(worker)
        timeout = checked_timeout("Collector(timeout=…)", timeout)
        check_env_kwargs(env_kwargs)
        self.seed = secrets.randbelow(_SEEDS) if seed is None else seed
        self.frames = 0
        self._random_frames = random_rows(init_random_frames)
        self._mask = action_mask
        if action_mask is not None and isinstance(policy, str | Path):
            raise ValueError("action_mask= is for policies in Python and served ones: C++ networks know no masks")
        self._split = split_trajectories
        self._seconds = 0.0
        self._batches = 0
        self._begun = False
        self._paused = False
        self._board = CollectorBoard(mode, self.num_envs, self.num_collectors, self.total_frames)
        self._as, self._device = output_and_device(output, device)
        make: dict[str, Any] = {
            "max_episode_steps": time_limit(env, max_frames_per_traj, max_episode_steps),
            "env_kwargs": env_kwargs,
            "frame_stack": frame_stack,
            "reward_clip": reward_clip,
            "wrappers": wrappers,
            "atari": atari,
            "backend": backend,
        }
        calls_of = rows_of_policy(policy_batch, policy, self.num_envs, mode)
        if cohorts is not None:
            calls_of = cohort_size(cohorts, self.num_envs, mode, policy_batch)
            if num_workers != 0:
                num_workers = max(1, (num_workers or len(os.sched_getaffinity(0))) // cohorts)
        elif mode != "sync" or calls_of < self.num_envs:
            num_workers = num_workers or 0
        make["num_workers"] = num_workers
        of_all = Setup(
            env,
            0,
            self.num_envs,
            self.num_envs,
            make,
            policy,
            calls_of,
            next_obs,
            self.seed,
            None,
            action_mask,
            all_outputs=self._random_frames > 0,
        )
        self._source: Source
        if mode == "sync":
            make |= {"context": context, "on_fault": on_fault, "timeout": timeout, "worker": worker}
            self._source = InProcess(replace(of_all, timeout=timeout, cohorts=cohorts or 1))
        else:
            setups = [
                replace(of_all, first=first, count=count) for first, count in shares(self.num_envs, self.num_collectors)
            ]
            self._source = self._multi(setups, policy, context, on_fault, timeout, worker, preemptive_threshold, ahead)
        self._board.set_processes(self._source.pids)
        keep_from_children(self, "this Collector was", ("_source",), Collector._leave_to_parent)
        self.single_observation_space = self._source.single_observation_space
        self.single_action_space = self._source.single_action_space
        if self._as == "auto":
            self._as = "torch" if self._source.wants_tensors else "numpy"

    def _multi(
        self,
        setups: list[Setup],
        policy: Any,
        context: str,
        on_fault: str | FaultPolicy,
        timeout: float | None,
        options: WorkerOptions | None,
        threshold: float | None,
        ahead: int,
    ) -> Multi:
        from shoal.atari.preprocessing import preprocessing_of
        from shoal.collect.multi import MultiAsync, MultiSync
        from shoal.vector.factories import recipe_of
        from shoal.vector.wrappers import wrappers_of

        check_policy(policy)
        setup = setups[0]
        env, make = setup.env, setup.make
        atari = preprocessing_of(make["atari"])
        recipe = recipe_of(env, self.num_envs, dict(make["env_kwargs"] or {}), wrappers_of(make["wrappers"]), atari)
        preload = list(recipe.preload)
        if isinstance(policy, str | Path):
            preload.append("shoal._learn")
        elif is_module(policy):
            preload.append("torch")
        more: dict[str, Any] = {
            "recipe": recipe._replace(preload=preload),
            "context": context,
            "options": WorkerOptions() if options is None else options,
            "policy_of_faults": fault_policy(on_fault),
            "timeout": timeout,
        }
        if self.mode == "multi_sync":
            return MultiSync(setups, policy, threshold, **more)
        return MultiAsync(setups, policy, self.frames_per_batch, self.total_frames, self._random_frames, ahead, **more)

    # Batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    @in_call
    def __next__(self) -> dict[str, Any]:
        """The next batch.

        Raises:
            StopIteration: after `total_frames`.
            shoal.WorkerDied, TimeoutError: and whatever environments and policy raise. Only reset() and close() are of use
                then; with "sync" only close() where a worker has died or its environments have raised, and on_fault="raise".
            shoal.TooManyFaults: with on_fault="restart", once there were more than are forgiven.
        """
        ready = self._source.pending  # first of all: it raises in a forked child
        frames = self.frames_per_batch
        if self.total_frames is not None:
            frames = min(frames, self.total_frames - self.frames)
            if frames <= 0:
                raise StopIteration
        if self._paused and not ready:
            raise RuntimeError("this collector is paused: call resume() first")
        start = time.perf_counter()
        self._board.begin()
        if not self._begun:
            self._reset(self.seed)
        steps = frames // self._envs_per_batch
        missing = max(0, self._random_frames - self.frames)
        self._source.handed = self.frames
        raw = self._source.next(steps, min(steps, -(-missing // self._envs_per_batch)))
        if self._mask is not None:
            check_masked(raw.arrays, self._mask, int(self.single_action_space.start))
            raw.arrays["action_mask"] = raw.arrays["obs"][self._mask]
        raw.arrays["staleness"] = self._source.version - raw.arrays["policy_version"]
        batch: dict[str, Any] = self._finished(raw)
        self.frames += raw.rows
        self._batches += 1
        self._seconds += time.perf_counter() - start
        self._board.set_processes(self._source.pids)
        self._board.done(
            frames=self.frames,
            batches=self._batches,
            wait_ns=int(self._seconds * 1e9),
            pending=self._source.pending,
            policy_version=self._source.version,
            restarts=self._source.restarts,
        )
        return batch

    @in_call
    def reset(self, seed: int | None = None) -> None:
        """Resets all environments, environment i with `seed + i` (None: its generator goes on). What was counted stays.

        The first batch does so by itself. After Ctrl-C, a timeout, or a failure of environments or policy it makes the collector
        usable again. In the multi modes it starts new processes in the places of those that have ended. With "sync" it waits for
        the step that was left under way, for up to `timeout`; after the death of a worker, or what its environment has raised,
        it does not help unless `on_fault` is "restart" or "drop": make a new collector then.

        Raises:
            TimeoutError: where that step takes longer; reset() may be called again.
        """
        self._reset(seed_or_none(seed))

    def _reset(self, seed: int | None) -> None:
        self._source.reset(seed)
        self._board.set_processes(self._source.pids)
        self._begun = True

    @in_call
    def pause(self) -> None:
        """No environment is stepped until resume(). With "multi_async" it waits for the batches that are under way, which
        are handed out as all others are; the other modes step only while a batch is asked for."""
        self._source.pause()
        self._paused = True
        self._board.set(paused=1)

    @in_call
    def resume(self) -> None:
        """Goes on after pause(); the collectors of "multi_async" begin at once."""
        self._source.handed = self.frames
        self._source.resume()
        self._paused = False
        self._board.set(paused=0)

    def _finished(self, raw: Raw) -> Any:
        arrays = split(raw.arrays) if self._split else raw.arrays
        arrays = arrays | (raw.states or {})
        if self._as == "numpy":
            return arrays
        import torch

        def tensor(value: Any) -> Any:
            made = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            return made if self._device is None else made.to(self._device)

        tensors = {name: tree_map(tensor, value) for name, value in arrays.items()}
        if self._as == "torch":
            return tensors
        return _tensordict(tensors, self._device)

    # Weights

    @property
    def policy_version(self) -> int:
        """Of the policy's weights: how often they were updated; of a model service, its own number."""
        return self._source.version

    def update_weights(self, weights: Mapping[str, Any] | None = None) -> int:
        """New weights for the batches that follow; of "multi_async", for those that are begun from now on.

        Args:
            weights: of a C++ network, arrays or tensors under the names of a run's policy.safetensors; of a torch module (or
                what else has a `load_state_dict`) a state_dict; of a ModelService, what its update() takes. None: the
                policy, which lives in this process, has been changed already: its version is counted, and the collectors
                of the multi modes get its state_dict().

        Returns:
            their version.

        Raises:
            ValueError: for weights that do not fit a C++ network, a served model, or the policy of collectors in other
                processes, which keep the old ones.
        """
        if self._gate.is_closed:
            raise RuntimeError("this collector is closed: make a new one to go on")

        def update() -> int:
            return self._source.update_weights(weights)

        if self._gate.under_way == "load_state_dict" or not self._source.takes_weights_any_time:
            return self._gate.run("update_weights", update, self._end)
        return self._updates.run("update_weights", update, lambda: None)

    # Where it stands

    def stats(self) -> dict[str, Any]:
        """Counts so far: `frames`, `batches`; of them rows that are not valid, by cause: `lost_to_faults`,
        `lost_to_resets`, `lost_to_preemption`; `episodes` that ended, `mean_return` and `mean_length` of the last 100 of them
        (of each collector; None before the first); `seconds` spent in waiting for batches and `frames_per_second`; `envs`, as
        `shoal.VectorEnv.stats()` with "sync".

        In the multi modes: `collectors`, for each its `pid`, `first_env`, `num_envs`, `frames` that it has made, those of
        the batch under way included, `orders` that it has and `restarts`; `lost_with_collectors`: rows that were made and
        lost with their process, which are in no batch; with "multi_async" `pending`: batches that are there and were not
        taken yet."""
        counts = self._source.counts()
        return {
            "frames": self.frames,
            "total_frames": self.total_frames,
            "batches": self._batches,
            "lost_to_faults": counts.faults,
            "lost_to_resets": counts.resets,
            "lost_to_preemption": 0,
            "lost_with_collectors": 0,
            "episodes": counts.episodes,
            "mean_return": counts.mean_return,
            "mean_length": counts.mean_length,
            "policy_version": self._source.version,
            "seconds": self._seconds,
            "frames_per_second": self.frames / self._seconds if self._seconds else 0.0,
            **self._source.telemetry(),
        }

    @in_call
    def state_dict(self) -> dict[str, Any]:
        """All that the next batch depends on: environments, counts, generators, states of recurrent policies, and a C++ network's
        weights; those of other policies are the caller's, or what update_weights() has given the collectors of the multi modes. It can be pickled,
        and loaded into another collector with the same arguments. With "multi_async" it waits for the batches that are under
        way, and has those that were not taken yet.

        Where an environment cannot be pickled, only copied (`copy.deepcopy`), its copy stays where the environment is, as of
        `shoal.VectorEnv.snapshot`. Then the state can be loaded into this very collector alone, while the processes of its
        environments live and what this call returned is held: what is unpickled does not count. When it is let go, the next
        state_dict() or load_state_dict() frees the copies.

        Raises:
            TypeError: for environments that support no snapshots, with the reason. Batches go on.
        """
        return {
            "seed": self.seed,
            "mode": self.mode,
            "frames": self.frames,
            "batches": self._batches,
            "begun": self._begun,
            "source": self._source.state(),
        }

    @in_call
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another collector stood, with the same batches, until this one's `total_frames`.

        Raises:
            TypeError, ValueError: for what state_dict() has not given.
            ValueError: for the state of other environments, or of another mode or number of collectors, for one whose copies of
                environments are elsewhere or gone (see state_dict()), and where more rows are ready than `total_frames` leaves
                room for. With "sync" what is of other environments changes nothing. Once environments have begun to load it, or
                collectors in other processes, only reset() and close() are of use.
        """
        self._check_state(state)
        if state["mode"] != self.mode:
            raise ValueError(
                f"load a collector's state: it is of mode={state['mode']!r}, this one has mode={self.mode!r}"
            )
        self._source.load_state(state["source"], state["seed"], state["frames"])
        self.seed = state["seed"]
        self.frames = state["frames"]
        self._batches = state["batches"]
        self._begun = state["begun"]

    def _check_state(self, state: Any) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"load_state_dict() takes what state_dict() gave, got {state!r}")
        lacks = [name for name in _STATE_PARTS if name not in state]
        if not lacks and state["mode"] == self.mode:
            source = state["source"]
            parts = self._source.state_parts
            lacks = [name for name in parts if not isinstance(source, Mapping) or name not in source]
        if lacks:
            raise ValueError(
                f"load_state_dict() takes what state_dict() gave; this has no {', '.join(map(repr, lacks))}"
            )

    def close(self) -> None:
        """Ends the environments and the processes. May be called again. Batches that were handed out stay.

        Within a call, or while another thread is in one, it ends that call, which raises RuntimeError: as soon as what it waits
        for allows, and with environments and a C++ network of this process at the end of the batch. In a signal's handler, or
        in the policy, close() returns before.
        """
        self._gate.close(self._end, self._end_soon)

    def _end(self) -> None:
        self._board.end()  # in a forked child nothing, as the source's
        self._source.close()

    def _end_soon(self) -> None:
        self._source.end_soon()

    def _leave_to_parent(self) -> None:
        """In a forked child, before the source is replaced. Calls under way are the parent's."""
        self._gate, self._updates = CallGate(), CallGate()
        self._source.leave_to_parent()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"cannot pickle or copy {type(self).__name__!r} object: it holds running environments. Make another one with the "
            "same arguments where it is needed; state_dict() and load_state_dict() hand over where this one is"
        )

    @never_raises
    def __repr__(self) -> str:
        end = "" if self.total_frames is None else f" of {self.total_frames:,}"
        return f"<Collector of {self.num_envs} environments, {self.frames:,}{end} frames>"


def _tensordict(tensors: dict[str, Any], device: Any) -> Any:
    make = importlib.import_module("tensordict").TensorDict

    def nested(value: Any) -> Any:
        if isinstance(value, tuple | list):
            value = {str(i): part for i, part in enumerate(value)}
        return {key: nested(part) for key, part in value.items()} if isinstance(value, dict) else value

    of_envs = {name: tensors.pop(name) for name in ("state", "next_state") if name in tensors}
    made = make({name: nested(value) for name, value in tensors.items()}, tensors["reward"].shape, device=device)
    for name, value in of_envs.items():  # not of rows
        made.set_non_tensor(name, value)
    return made
