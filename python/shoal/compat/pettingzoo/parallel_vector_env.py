"""Parallel environments in worker processes, with agents as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from shoal.vector.infos import MARKS, without_marks
from shoal.vector.vector_env import VectorEnv

__all__ = ["ParallelVectorEnv"]


class ParallelVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Rows are agents: agent k of environment i is row `i * len(agents) + k`. Made by `shoal.compat.pettingzoo.make_vec`.

    An agent keeps its row while it comes and goes. `infos["alive"]`, bool of shape (num_envs,), says which rows' agents act
    in the next step; actions of the others are not looked at. The step in which an agent goes returns its last observation
    and reward, with terminated or truncated set; from then on its row has zeros, reward 0 and False, until it is back.
    A row of a step is a transition where `infos["alive"]` was True before the step. What agents say in their own infos is
    arrays with masks, as Gymnasium's, with a row an agent. A time limit or a wrapper that ends an episode ends it for every
    agent that is there, with truncated or terminated set.

    Attributes:
        num_envs: rows: environments times agents.
        agents: the names, in the order of rows.
        vector_env: the `shoal.VectorEnv` underneath, whose environments are the parallel ones.

    Threads: one at a time.
    """

    def __init__(self, vector_env: VectorEnv) -> None:
        self.vector_env = vector_env
        self.agents: list[Any] = vector_env.get_attr("agents")[0]
        self.num_envs = vector_env.num_envs * len(self.agents)
        self.single_observation_space = vector_env.get_attr("single_observation_space")[0]
        self.single_action_space = vector_env.get_attr("single_action_space")[0]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = vector_env.metadata
        self.render_mode = vector_env.render_mode
        self._alive = np.zeros((vector_env.num_envs, len(self.agents)), np.bool_)
        self._resets = vector_env.autoreset_mode is not AutoresetMode.DISABLED
        self._over = np.zeros(vector_env.num_envs, np.bool_)  # environments that the caller has to reset
        self._resets_of: Any = slice(None)  # environments of the last reset

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment.

        Args:
            seed: environment i, not row i, gets `seed + i`, or element i of a sequence.
            options: given to every environment; "reset_mask" has an element for each environment.
        """
        observations, said = self.reset_rows(seed, options)
        return observations, self._infos(said)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One action a row."""
        *rows, said = self.step_rows(actions)
        return (*rows, self._infos(said))

    def reset_rows(self, seed: Any, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """As reset(), with the infos that the environments gave, whose agents' own are those of said_by_row()."""
        self._resets_of = (options or {}).get("reset_mask", slice(None))
        return self._rows_of_reset(self.vector_env.reset(seed=seed, options=options))

    def _rows_of_reset(self, result: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        told, infos = result
        rows = self._resets_of
        self._over[rows] = False
        self._alive[rows] = told["alive"][rows]
        self._alive[self._away(infos)[0]] = False
        return self._rows(told["observation"]), infos

    def step_rows(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """As step(), with infos as those of reset_rows()."""
        return self._rows_of_step(self.vector_env.step(self._by_env(self.single_action_space, actions)))

    def finish_interrupted(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]] | None:
        """Waits for a call that Ctrl-C has left under way, if there is one; the result of step_rows() where it was a step. What
        it raises is raised. For Shoal's own use."""
        vector_env, result = self.vector_env, None
        if vector_env._interrupted and vector_env._pending == "step":
            result = self._rows_of_step(vector_env.step_wait())
        elif vector_env._interrupted and vector_env._pending == "reset":
            self._rows_of_reset(vector_env.reset_wait())
        vector_env.finish_interrupted()
        return result

    def _rows_of_step(self, result: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        told, _, *flags, infos = result
        rewards = told["reward"].copy()
        terminated, truncated, alive = (told[key].astype(np.bool_) for key in ("terminated", "truncated", "alive"))
        away, lost = self._away(infos)
        away |= self._over  # their rows have nothing new
        rewards[away], terminated[away], alive[away] = 0.0, False, False
        truncated[away] = self._alive[away] & lost[away, None]
        for own, ended in zip((terminated, truncated), flags, strict=True):  # what is around them may end episodes, too
            own |= ended[:, None] & alive & self._alive
        ended = flags[0] | flags[1]
        alive[ended] = False
        self._alive = alive
        if not self._resets:
            self._over |= ended & ~away
        return (
            self._rows(told["observation"]),
            rewards.reshape(-1),
            terminated.reshape(-1),
            truncated.reshape(-1),
            infos,
        )

    @property
    def alive(self) -> np.ndarray:
        """Which rows' agents act in the next step: a copy, bool of shape (num_envs,)."""
        return self._alive.reshape(-1).copy()

    def said_by_row(self, infos: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Of the agents that said something their rows and infos, in the order of the rows."""
        for i in np.flatnonzero(infos.get("_of", ())).tolist():
            for k, said in infos["of"][i]:
                yield i * len(self.agents) + k, said

    def render(self) -> tuple[Any, ...]:
        """What every parallel environment renders."""
        return self.vector_env.call("render")

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments: `shoal.VectorEnv.close(**kwargs)`."""
        self.vector_env.close(**kwargs)

    def __enter__(self) -> ParallelVectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rows(self, told: Any) -> Any:
        if isinstance(told, dict):
            return {key: self._rows(part) for key, part in told.items()}
        if isinstance(told, tuple):
            return tuple(self._rows(part) for part in told)
        return told.reshape(self.num_envs, *told.shape[2:])

    def _infos(self, infos: dict[str, Any]) -> dict[str, Any]:
        by_row: dict[str, Any] = {}
        for row, said in self.said_by_row(infos):
            by_row = self._add_info(by_row, said, row)
        if self.vector_env._marks_rows:
            by_row = without_marks(by_row)
        for key in MARKS:  # of environments, which all of their rows have
            if key in infos:
                by_row[key], by_row[f"_{key}"] = (np.repeat(infos[name], len(self.agents)) for name in (key, f"_{key}"))
        return {**by_row, "alive": self.alive}

    def _away(self, infos: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Which environments are not there, and which of these this call has lost."""
        nowhere = np.zeros(len(self._alive), np.bool_)
        lost, down, dropped = (infos.get(key, nowhere) for key in ("_fault", "down", "dropped"))
        return lost | down | dropped, lost

    def _by_env(self, space: gymnasium.Space[Any], rows: Any) -> Any:
        """Actions of agents as actions of environments."""
        if isinstance(space, spaces.Dict):
            return {key: self._by_env(part, rows[key]) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._by_env(part, own) for part, own in zip(space.spaces, rows, strict=True))
        actions = np.asarray(rows)
        if actions.shape[:1] != (self.num_envs,):
            raise ValueError(
                f"step() takes an action for each of {self.num_envs} rows, {len(self.agents)} agents of "
                f"{self.vector_env.num_envs} environments; got an array of shape {actions.shape}"
            )
        return actions.reshape(-1, len(self.agents), *actions.shape[1:])
