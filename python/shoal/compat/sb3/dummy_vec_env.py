"""`stable_baselines3.common.vec_env.DummyVecEnv`, without what makes it slow: environments in this process."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv as PeersDummyVecEnv
from stable_baselines3.common.vec_env.util import dict_to_obs

from shoal.compat.arguments import factories_of, rows_of
from shoal.compat.closing import WarnsAtClose
from shoal.reprs import never_raises

__all__ = ["DummyVecEnv"]

_NEVER_CHANGE = frozenset(
    {bool, bytes, complex, float, int, str, type(None), np.bool_, np.float32, np.float64, np.int32, np.int64, np.uint8}
)


class DummyVecEnv(WarnsAtClose, PeersDummyVecEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of `stable_baselines3.common.vec_env.DummyVecEnv`, and is one. Unlike it:

    - `terminal_observation` is copied before the environment is reset, which may use its buffer again;
    - results are made anew instead of copied;
    - an environment's exception says which environment it was;
    - close() closes all environments, and what they raise there is a warning.
    """

    buf_obs: OrderedDict[Any, np.ndarray]

    def __init__(self, env_fns: list[Callable[[], gymnasium.Env]]) -> None:
        super().__init__(factories_of(env_fns, type(self).__name__, "shoal.compat.sb3.make_vec_env(id, 4)"))

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.num_envs} environments>"

    def step_async(self, actions: np.ndarray) -> None:
        if len(actions) < self.num_envs:  # of more the peer takes the first
            raise ValueError(f"step(): {len(actions)} actions for {self.num_envs} environments")
        super().step_async(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        self._make_room()
        rewards = self.buf_rews = np.zeros(self.num_envs, np.float32)
        dones = self.buf_dones = np.zeros(self.num_envs, np.bool_)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.buf_infos = infos
        i = 0
        try:
            for i, env in enumerate(self.envs):
                observation, rewards[i], terminated, truncated, info = env.step(self.actions[i])
                infos[i] = info = _own(info)
                info["TimeLimit.truncated"] = truncated and not terminated
                if terminated or truncated:
                    dones[i] = True
                    info["terminal_observation"] = copy.deepcopy(observation)
                    observation, self.reset_infos[i] = env.reset()
                self._save_obs(i, observation)
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"environment {i}: step()")
            raise
        return dict_to_obs(self.observation_space, OrderedDict(self.buf_obs)), rewards, dones, infos

    def reset(self) -> Any:
        self._make_room()
        return super().reset()

    def close(self) -> None:
        self._tell_close_failures(self._close_each(self.envs))

    def _make_room(self) -> None:
        """The arrays of the last result are the caller's."""
        self.buf_obs = OrderedDict((key, np.empty_like(rows)) for key, rows in self.buf_obs.items())

    def _get_target_envs(self, indices: Any) -> list[gymnasium.Env]:
        return [self.envs[row] for row in rows_of(indices, self.num_envs, type(self).__name__)]


def _own(info: dict[str, Any]) -> dict[str, Any]:
    """A copy that no environment's code knows."""
    if type(info) is not dict:
        return copy.deepcopy(info)
    return {key: value if type(value) in _NEVER_CHANGE else copy.deepcopy(value) for key, value in info.items()}
