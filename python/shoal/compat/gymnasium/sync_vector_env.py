"""`gymnasium.vector.SyncVectorEnv` on Shoal's engine: all environments in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.compat.gymnasium.exact_actions import step_exactly
from shoal.compat.gymnasium.observation_mode import ObservationMode, check_mode, observation_spaces
from shoal.vector import serial
from shoal.vector.factories import recipe_of
from shoal.vector.options import WorkerOptions
from shoal.vector.vector_env import VectorEnv

__all__ = ["SyncVectorEnv"]


class SyncVectorEnv(VectorEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of `gymnasium.vector.SyncVectorEnv`: its arguments, attributes and errors. After an exception of an
    environment only close() is of use.

    Attributes:
        envs: the environments.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env]],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        """See `gymnasium.vector.SyncVectorEnv`.

        Raises:
            RuntimeError: environments whose spaces do not go together.
        """
        mode = AutoresetMode(autoreset_mode)
        check_mode(observation_mode)
        recipe = recipe_of(list(env_fns), None, {})
        engine, group, board = serial.start(
            recipe,
            mode.name.lower(),
            WorkerOptions(),
            check=functools.partial(_check_spaces, mode=observation_mode),
            same_observations=False,
            exact=True,
        )
        super().__init__(
            engine, group.description(), autoreset_mode=mode, copy=copy, group=group, board=board, exact=True
        )
        self.envs = group.envs
        seen = [env.observation_space for env in self.envs]
        batched, single = observation_spaces(observation_mode, seen, self.num_envs, type(self).__name__)
        self.env_fns = env_fns
        self.observation_mode = observation_mode
        self.observation_space, self.single_observation_space = batched, single
        self.spec = None  # factories do not say how the whole could be made again
        self._was_reset = True  # or not: the environments say whether they may be stepped before
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        super().reset_async(seed, options)
        mask = options.pop("reset_mask", None) if options is not None else None  # as the peer: out of the caller's dict
        self._ended[slice(None) if mask is None else mask] = False

    def step_async(self, actions: Any) -> None:
        if self.autoreset_mode is AutoresetMode.DISABLED:
            assert not self._ended.any(), f"environments that have ended must be reset first: {self._ended=}"
        step_exactly(self, actions, super().step_async)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        result = super().step_wait(timeout)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._ended = result[2] | result[3]
        return result


def _check_spaces(envs: Sequence[Any], mode: ObservationMode) -> None:
    first = envs[0].observation_space if not isinstance(mode, tuple) else mode[1]
    for env in envs:
        space = env.observation_space
        if mode == "same" and not _core.same_space(space, first):
            raise RuntimeError(
                "SyncVectorEnv(..., observation_mode='same') however the sub-environments observation spaces are not "
                f"equivalent. single_observation_space={first}, sub-environment observation_space={space}. If this is "
                "intentional, use `observation_mode='different'` instead."
            )
        if mode != "same" and not is_space_dtype_shape_equiv(space, first):
            raise RuntimeError(
                "SyncVectorEnv(..., observation_mode='different' or custom space) however the sub-environments "
                f"observation spaces do not share a common shape and dtype, single_observation_space={first}, "
                f"sub-environment observation space={space}"
            )
        if not _core.same_space(env.action_space, envs[0].action_space):
            raise RuntimeError(
                f"Sub-environment action space doesn't make the `single_action_space`, action_space={env.action_space}, "
                f"single_action_space={envs[0].action_space}"
            )
