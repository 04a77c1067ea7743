"""Agents as the rows of a Stable-Baselines3 VecEnv."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from shoal.compat.arguments import rows_of
from shoal.compat.pettingzoo.parallel_vector_env import ParallelVectorEnv
from shoal.vector.infos import MARKS

__all__ = ["AgentsVecEnv"]


class AgentsVecEnv(VecEnv):
    """Steps parallel environments whose agents are rows, as Stable-Baselines3 has them. Made by
    `shoal.compat.pettingzoo.make_vec(…, base_class="stable_baselines3")`.

    A row is done in the step in which its agent goes: `infos[row]` then has "terminal_observation", "TimeLimit.truncated" and
    "episode", as `Monitor` adds it. From then on the row has zeros, reward 0, and `infos[row]["acted"]` False: no transition.
    The step after which no agent of an environment is left, or which meets a time limit, returns the next episode's first
    observations; rows that had gone before are done once more then, without "episode".

    A call that Ctrl-C has left under way is waited for by the next one, which drops what comes of it.

    Attributes:
        envs: the environments as Gymnasium has them, a `ParallelVectorEnv`.

    Threads: one at a time.
    """

    reset_infos: list[dict[str, Any]]

    def __init__(self, envs: ParallelVectorEnv) -> None:
        self.envs = envs
        self._actions: Any = None
        self._tells_options = False  # whether environments may have options of a reset before
        self._alive = np.zeros(envs.num_envs, np.bool_)
        self._made_at = time.perf_counter()
        self._returns = np.zeros(envs.num_envs)
        self._lengths = np.zeros(envs.num_envs, np.int64)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Environment i gets the seed of `seed()` plus i, and the options of its first agent."""
        options = self._common_options()
        self._begin(np.ones(self.num_envs, np.bool_))
        observations, said = self.envs.reset_rows(self._seeds[0], options)
        self._alive = self.envs.alive
        self._tells_options = False
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = self._infos_of_rows(said)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._finish_interrupted()
        return self._result_of(*self.envs.step_rows(self._actions))

    def _finish_interrupted(self) -> None:
        result = self.envs.finish_interrupted()
        if result is not None:
            self._result_of(*result)
        self._alive = self.envs.alive

    def _result_of(
        self,
        observations: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        said: dict[str, Any],
    ) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Of step_rows(), after which environments without agents begin an episode."""
        acted = self._alive
        alive = self.envs.alive
        infos = self._infos_of_rows(said)
        dones = terminated | truncated
        self._returns += rewards
        self._lengths += acted
        for row, info in enumerate(infos):
            info["acted"] = bool(acted[row])
            info["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
            if dones[row]:
                seconds = round(time.perf_counter() - self._made_at, 6)
                info["episode"] = {"r": round(float(self._returns[row]), 6), "l": int(self._lengths[row]), "t": seconds}
        over = ~alive.reshape(-1, len(self.envs.agents)).any(1)
        of_over = np.repeat(over, len(self.envs.agents))
        dones |= of_over
        for row in np.flatnonzero(dones).tolist():
            infos[row]["terminal_observation"] = _row_of(observations, row)
        self._begin(of_over | (alive & ~acted))
        if over.any():
            observations, said = self.envs.reset_rows(None, {"reset_mask": over})
            for row, info in enumerate(self._infos_of_rows(said)):
                if of_over[row]:
                    self.reset_infos[row] = info
        self._alive = self.envs.alive
        return observations, rewards, dones, infos

    def close(self) -> None:
        self.envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """One of each environment."""
        self._finish_interrupted()
        return self.envs.render()

    def has_attr(self, attr_name: str) -> bool:
        """Whether all parallel environments have it, also where it could not leave its process."""
        return all(self._ask("has_attr", None, "has", attr_name))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Of the row's parallel environment."""
        return self._ask("get_attr", indices, "get", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        self._ask("set_attr", indices, "set", attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Calls it once of each environment of which a row is named."""
        return self._ask("env_method", indices, "call", method_name, method_args, method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """True of `Monitor`, whose "episode" infos have; False of others."""
        return [wrapper_class is Monitor] * len(
            rows_of(indices, self.num_envs, f"{type(self).__name__}.env_is_wrapped()")
        )

    def _ask(self, asked_by: str, indices: Any, how: str, name: str, *arguments: Any) -> list[Any]:
        count = len(self.envs.agents)
        rows = rows_of(indices, self.envs.num_envs, f"{type(self).__name__}.{asked_by}()")
        asked = {row // count for row in rows}
        self._finish_interrupted()
        vector_env = self.envs.vector_env
        vector_env._check_idle(asked_by)
        if vector_env._group is None:
            vector_env._engine.require_open(asked_by)
        vector_env.set_attr("is_asked", [i in asked for i in range(vector_env.num_envs)])
        answers = vector_env.call("ask", how, name, *arguments)
        return [answers[row // count] for row in rows]

    def _common_options(self) -> dict[str, Any] | None:
        """Of the coming reset, where all environments have the same; otherwise each is told its own."""
        if len(self._options) < self.num_envs:
            raise ValueError(
                f"reset(): set_options() got {len(self._options)} dicts for {self.num_envs} rows; it takes a dict for all, or one "
                "for each row, of which that of an environment's first agent counts"
            )
        first, *others = options = self._options[: self.num_envs : len(self.envs.agents)]
        are_own = any(options) and any(own is not first for own in others)
        if are_own or self._tells_options:  # also after a reset that failed, which may have left some
            self._tells_options = True
            self.envs.vector_env.finish_interrupted()
            self.envs.vector_env.set_attr("reset_options", [(own or None) if are_own else None for own in options])
        return None if are_own else (first or None)

    def _begin(self, rows: np.ndarray) -> None:
        """Episodes of `rows`."""
        self._returns[rows], self._lengths[rows] = 0.0, 0

    def _infos_of_rows(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        is_here = self.envs.vector_env._group is not None  # then what environments say may be theirs
        for row, own in self.envs.said_by_row(said):
            infos[row] = copy.deepcopy(own) if is_here else own
        for key in MARKS:
            for i in np.flatnonzero(said.get(f"_{key}", ())).tolist():
                for row in range(i * len(self.envs.agents), (i + 1) * len(self.envs.agents)):
                    infos[row][key] = said[key][i]
        return infos


def _row_of(observations: Any, row: int) -> Any:
    """A copy."""
    if isinstance(observations, dict):
        return {key: _row_of(part, row) for key, part in observations.items()}
    return observations[row].copy()
