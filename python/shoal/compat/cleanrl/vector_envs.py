"""Gymnasium's vector environments with the resets and infos of Gymnasium 0.29."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from shoal import _core
from shoal.compat import gymnasium as compat
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.infos import Entry
from shoal.vector.options import WorkerOptions
from shoal.vector.seeding import CheckedSeeds, LastSeeds
from shoal.vector.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv", "SyncVectorEnv"]

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


class _InfosOfEach(VectorEnv):
    """Infos of ended episodes as an object array, with a dict in the rows of these and None in the others."""

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = super().step_wait(timeout)
        lost = terminated | truncated
        if "final_observation" in infos:
            lost &= ~infos["_final_observation"]
        infos = self._with_last_seen(infos, observations, np.flatnonzero(lost).tolist())
        return observations, rewards, terminated, truncated, infos

    def _with_last_seen(self, infos: dict[str, Any], observations: Any, rows: Sequence[int]) -> dict[str, Any]:
        """With the observations of these rows as the last ones of their episodes."""
        if not rows:
            return infos
        each = list(iterate(self.observation_space, observations))
        return _with_finals(infos, {row: deepcopy(each[row]) for row in rows}, {}, self.num_envs)

    def _batched_infos(
        self,
        batch: gymnasium.vector.VectorEnv[Any, Any, Any],
        entries: Sequence[Entry],
        final_observations: dict[int, Any],
    ) -> dict[str, Any]:
        infos = super()._batched_infos(batch, [entry for entry in entries if not entry[1]], {})
        if not final_observations:
            return infos
        own = {row: info for row, is_final, info in entries if is_final}
        return _with_finals(infos, final_observations, own, self.num_envs)


def _with_finals(
    infos: dict[str, Any], observations: Mapping[int, Any], of_rows: Mapping[int, Any], num_envs: int
) -> dict[str, Any]:
    """The last observations and infos of these rows' episodes, beside those that are there already."""
    found = {key: infos.get(key, np.full(num_envs, None, object)) for key in ("final_observation", "final_info")}
    mask = infos.get("_final_observation", np.zeros(num_envs, np.bool_))
    for row, observation in observations.items():
        found["final_observation"][row], found["final_info"][row] = observation, dict(of_rows.get(row, {}))
        mask[row] = True
    return {**infos, **found, **{f"_{key}": mask.copy() for key in found}}


def _joined(infos: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Batched infos of two calls as those of one: what `more` says where `infos` say nothing. Values of two kinds are an array of
    objects, as what is no number is."""
    joined = dict(infos)
    for key, value in more.items():
        mask = more.get(f"_{key}")
        if mask is None:  # it is one itself
            continue
        if key not in infos:
            joined[key], joined[f"_{key}"] = value, mask
            continue
        own, told = infos[key], infos[f"_{key}"]
        untold = mask & ~told
        if isinstance(own, dict) and isinstance(value, dict):
            joined[key] = _joined(own, value)
        elif _is_alike(own, value):
            own[untold] = value[untold]
        elif untold.any():
            joined[key] = np.full(len(mask), None, object)
            for of, rows in ((own, told), (value, untold)):
                for row in np.flatnonzero(rows).tolist():
                    joined[key][row] = _of_row(of, row)
        told[untold] = True
    return joined


def _is_alike(own: Any, other: Any) -> bool:
    """Whether rows of `other` can be written into `own`, as they are."""
    if isinstance(own, dict) or isinstance(other, dict):
        return False
    return bool(own.dtype == other.dtype and own.shape == other.shape)


def _of_row(values: Any, row: int) -> Any:
    """What batched infos say of one environment."""
    if not isinstance(values, dict):
        return values[row]
    masks = {key: values[f"_{key}"] for key in values if f"_{key}" in values}
    return {key: _of_row(values[key], row) for key, mask in masks.items() if mask[row]}


def _check_given(envs: VectorEnv, observation_space: Any, action_space: Any) -> None:
    """Closes environments whose spaces are not those that were asked for."""
    for name, given in (("observation_space", observation_space), ("action_space", action_space)):
        own = getattr(envs, f"single_{name}")
        if given is not None and not given == own:
            envs.close()
            raise RuntimeError(
                f"{type(envs).__name__}({name}={given}): the environments have another, {own}. Leave it out, or give theirs"
            )


class SyncVectorEnv(_InfosOfEach, compat.SyncVectorEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of Gymnasium 0.29's `gymnasium.vector.SyncVectorEnv`. A step that ends an episode also begins the next:
    it returns the first observation of the new one. `infos["final_observation"]` and `infos["final_info"]` then are object
    arrays of shape (num_envs,) with the last observation and info of each episode that has ended, None in the other rows,
    and masks `infos["_final_observation"]` and `infos["_final_info"]`.
    """

    def __init__(
        self, env_fns: EnvFns, observation_space: Any = None, action_space: Any = None, copy: bool = True
    ) -> None:
        """One function for each environment; `copy` as in `shoal.make_vec`.

        Raises:
            RuntimeError: the spaces of single environments are not the ones that were given.
        """
        super().__init__(env_fns, copy, autoreset_mode=AutoresetMode.SAME_STEP)
        _check_given(self, observation_space, action_space)


class AsyncVectorEnv(_InfosOfEach, compat.AsyncVectorEnv):
    """Steps environments in worker processes. Resets and infos are those of SyncVectorEnv."""

    _restarts = False
    _lost: Mapping[int, Fault] = {}  # by row, of the last step or reset, where new ones take their places
    _last_seeds: LastSeeds

    def __new__(cls, *_: Any, **__: Any) -> AsyncVectorEnv:
        return object.__new__(cls)  # whatever `worker` is: Gymnasium's own class has not these infos

    def __init__(
        self,
        env_fns: EnvFns,
        observation_space: Any = None,
        action_space: Any = None,
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker_options: WorkerOptions | None = None,
    ) -> None:
        """One function for each environment.

        Args:
            observation_space, action_space: of a single environment, to be compared with theirs.
            shared_memory: changes nothing: observations are in shared memory, but for spaces without arrays.
            context, daemon: as of `shoal.compat.gymnasium.AsyncVectorEnv`.
            copy: as in `shoal.make_vec`.
            worker: None; what 0.29's own workers do by their pipes is not done here.
            num_workers: so many processes share the environments; by default each has one of its own.
            on_fault: as in `shoal.make_vec`: with "restart" the episode of an environment that was lost ends truncated, and
                `infos["fault"]` has a `shoal.Fault`; its `final_observation` is the last that is known, its `final_info` empty. The
                same step begins an episode in the new environment, for which it waits.
            worker_options: how worker processes are set up.

        Raises:
            RuntimeError: the spaces of single environments are not the ones that were given.
            ValueError: for a `worker`.
        """
        if worker is not None:
            raise ValueError(
                "AsyncVectorEnv(worker=…): a worker of Gymnasium 0.29's speaks its pipes, which are not here"
            )
        super().__init__(
            env_fns,
            False,
            copy,
            context,
            daemon,
            autoreset_mode=AutoresetMode.SAME_STEP,
            num_workers=num_workers,
            on_fault=on_fault,
            worker_options=worker_options,
        )
        self._last_seeds = LastSeeds(self.num_envs)
        self._restarts = getattr(on_fault, "on_fault", on_fault) == "restart"
        _check_given(self, observation_space, action_space)

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        rows = (options or {}).get("reset_mask", slice(None))
        super().reset_async(seed, options)
        self._last_seeds.note(seed, rows)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        self._lost = {}
        observations, infos = super().reset_wait(timeout)
        while self._lost:
            observations, begun = self._renewed()
            infos = _joined(infos, begun)
        return observations, infos

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._lost = {}
        observations, rewards, terminated, truncated, infos = super().step_wait(timeout)
        while self._lost:
            observations, begun = self._renewed()
            infos = _joined(infos, begun)
            # These were lost with their worker, in the reset of another of its environments.
            rows = [row for row in self._lost if not (terminated[row] or truncated[row])]
            truncated[rows] = True
            infos = self._with_last_seen(infos, observations, rows)
        return observations, rewards, terminated, truncated, infos

    def _renewed(self) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment that is in the place of a lost one, as the step does that ends an episode.
        Returns the observations of all, and infos of those that begin."""
        lost, self._lost = self._lost, {}
        mask = np.zeros(self.num_envs, np.bool_)
        mask[list(lost)] = True
        seeds = CheckedSeeds(self._last_seeds.of_successors(lost), None)
        self._send_reset_arguments(None, seeds, mask)
        self._begin_reset(seeds.values, mask)
        return super().reset_wait()

    def _infos(self, extra: int, batch: gymnasium.vector.VectorEnv[Any, Any, Any] | None = None) -> dict[str, Any]:
        if self._restarts and extra & _core.EXTRA_FAULT:
            self._lost = dict(self._engine.faults())
        return super()._infos(extra, batch)
