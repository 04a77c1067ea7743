"""Gymnasium's vector environments with the resets and infos of Gymnasium 0.29."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.compat import gymnasium as compat
from shoal.vector.faults import FaultPolicy
from shoal.vector.infos import Entry
from shoal.vector.options import WorkerOptions
from shoal.vector.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv", "SyncVectorEnv"]

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


class _InfosOfEach(VectorEnv):
    """Infos of ended episodes as an object array, with a dict in the rows of these and None in the others."""

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
        observations, final_infos = (np.full(self.num_envs, None, object) for _ in range(2))
        mask = np.zeros(self.num_envs, np.bool_)
        for row, observation in final_observations.items():
            observations[row], final_infos[row], mask[row] = observation, own.get(row, {}), True
        ended = {"final_observation": observations, "final_info": final_infos}
        return {**infos, **ended, **{f"_{key}": mask.copy() for key in ended}}


class SyncVectorEnv(_InfosOfEach, compat.SyncVectorEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of Gymnasium 0.29's `gymnasium.vector.SyncVectorEnv`. A step that ends an episode also begins the next:
    it returns the first observation of the new one. `infos["final_observation"]` and `infos["final_info"]` then are object
    arrays of shape (num_envs,) with the last observation and info of each episode that has ended, None in the other rows,
    and masks `infos["_final_observation"]` and `infos["_final_info"]`.
    """

    def __init__(self, env_fns: EnvFns, copy: bool = True) -> None:
        """One function for each environment; `copy` as in `shoal.make_vec`."""
        super().__init__(env_fns, copy, autoreset_mode=AutoresetMode.SAME_STEP)


class AsyncVectorEnv(_InfosOfEach, compat.AsyncVectorEnv):
    """Steps environments in worker processes. Resets and infos are those of SyncVectorEnv."""

    def __init__(
        self,
        env_fns: EnvFns,
        copy: bool = True,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker_options: WorkerOptions | None = None,
    ) -> None:
        """One function for each environment.

        Args:
            copy: as in `shoal.make_vec`.
            num_workers: so many processes share the environments; by default each has one of its own.
            on_fault: as in `shoal.make_vec`: with "restart" the episode of an environment that was lost ends truncated, and
                `infos["fault"]` has a `shoal.Fault`; it has no `final_info`.
            worker_options: how worker processes are set up.
        """
        super().__init__(
            env_fns,
            False,
            copy,
            autoreset_mode=AutoresetMode.SAME_STEP,
            num_workers=num_workers,
            on_fault=on_fault,
            worker_options=worker_options,
        )
