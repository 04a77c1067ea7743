"""`gymnasium.vector.SyncVectorEnv` on Shoal's engine: all environments in this process."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.compat.arguments import factories_of
from shoal.compat.gymnasium.exact_actions import step_exactly
from shoal.compat.gymnasium.observation_mode import ObservationMode, check_mode, observation_spaces
from shoal.compat.gymnasium.reset_options import without_mask
from shoal.vector import serial
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.options import WorkerOptions
from shoal.vector.snapshots import Keeper
from shoal.vector.vector_env import VectorEnv

__all__ = ["SyncVectorEnv"]


class SyncVectorEnv(VectorEnv):
    """Steps environments one after the other, in the caller's process.

    Takes the place of `gymnasium.vector.SyncVectorEnv`: its arguments, attributes and errors. After an exception of an
    environment only close() is of use.

    Attributes:
        envs: the environments, a tuple: what is stepped was settled when they were made, so none can be replaced.
    """

    _reserved_calls = frozenset()

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
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
        factories = factories_of(env_fns, type(self).__name__)
        self._start(env_fns, recipe_of(factories, None, {}), copy, observation_mode, mode)

    def _start(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        recipe: Recipe,
        copy: bool,
        observation_mode: ObservationMode,
        mode: AutoresetMode,
    ) -> None:
        engine, group, shared_state = serial.start(
            recipe,
            mode.name.lower(),
            WorkerOptions(),
            check=functools.partial(_check_spaces, mode=observation_mode),
            same_observations=False,
            exact=True,
        )
        super().__init__(
            engine,
            group.description(),
            autoreset_mode=mode,
            copy=copy,
            group=group,
            shared_state=shared_state,
            exact=True,
        )
        self.envs = tuple(group.envs)
        seen = [env.observation_space for env in self.envs]
        batched, single = observation_spaces(observation_mode, seen, self.num_envs, type(self).__name__)
        self.env_fns = env_fns
        self.observation_mode = observation_mode
        self.observation_space, self.single_observation_space = batched, single
        self.spec = None  # factories do not say how the whole could be made again
        self._was_reset = True  # or not: the environments say whether they may be stepped before
        self._used = False
        self._autoreset_envs = np.zeros(self.num_envs, dtype=np.bool_)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies have copies of the environments, where they are; they can be pickled if the environments and what built them
        can, as the peer's."""
        group = self._group
        assert group is not None  # its environments are in this process
        keeper, group._keeper = group._keeper, HandOver(self.envs)
        try:
            states = self._engine.snapshot(list(range(self.num_envs))) if self._used and not self.closed else None
        finally:
            group._keeper = keeper
        own = {name: value for name, value in vars(self).items() if name not in _OF_ONE_ENGINE}
        arguments = self.env_fns, list(self.envs), self.copy, self.observation_mode, self.autoreset_mode
        return _again, (type(self), arguments, states, own)

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        options = without_mask(options)
        self._used = True
        super().reset_async(seed, options)
        self._autoreset_envs[(options or {}).get("reset_mask", slice(None))] = False

    def step_async(self, actions: Any) -> None:
        if self.autoreset_mode is AutoresetMode.DISABLED:
            assert not self._autoreset_envs.any(), (
                f"environments that have ended must be reset first: {self._autoreset_envs=}"
            )
        self._used = True
        step_exactly(self, actions, super().step_async)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        result = super().step_wait(timeout)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._autoreset_envs = result[2] | result[3]
        return result


_OF_ONE_ENGINE = frozenset({"_engine", "_group", "_shared_state", "_io", "_own_answer", "_parcel", "envs"})


class HandOver(Keeper):
    """In the place of a Keeper: the environments go as they are, beside the states, which name them by their numbers."""

    def __init__(self, envs: Sequence[Any]) -> None:
        super().__init__()
        self._envs = list(envs)

    def save(self, env: Any) -> bytes:
        return pickle.dumps(next(i for i, own in enumerate(self._envs) if own is env))

    def load(self, state: bytes) -> Any:
        return self._envs[pickle.loads(state)]


def _again(kind: type[SyncVectorEnv], arguments: tuple[Any, ...], states: Any, own: dict[str, Any]) -> SyncVectorEnv:
    env_fns, envs, copy, observation_mode, mode = arguments
    made = kind.__new__(kind)
    factories: list[Callable[[], Any]] = [functools.partial(_same, env) for env in envs]
    made._start(env_fns, Recipe("", factories, []), copy, observation_mode, mode)
    group = made._group
    assert group is not None
    group.factories = recipe_of(list(env_fns), None, {}).factories
    if states is not None:
        keeper, group._keeper = group._keeper, HandOver(envs)
        try:
            made._engine.restore(list(range(made.num_envs)), states)
        finally:
            group._keeper = keeper
    if own.get("closed"):
        made.close()
    vars(made).update(own)
    return made


def _same(env: Any) -> Any:
    return env


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
