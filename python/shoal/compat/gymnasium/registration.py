"""How `gymnasium.make_vec` reaches Shoal: by the vector entry points of environment ids."""

from __future__ import annotations

import copy
import functools
from typing import Any

import gymnasium
from gymnasium.envs import registration

from shoal import _core
from shoal.vector.make import make_vec
from shoal.vector.vector_env import VectorEnv

__all__ = ["register", "unregister"]

_before: dict[str, Any] = {}
"""The vector entry points that register() has replaced; _ABSENT for ids that it has added."""

_ABSENT = object()


class _EntryPoint:
    """What `gymnasium.make_vec` calls for one id."""

    def __init__(self, env_id: str, arguments: dict[str, Any]) -> None:
        self.env_id = env_id
        self.arguments = arguments

    def __deepcopy__(self, memo: Any) -> _EntryPoint:
        return self  # gymnasium.make_vec copies specs, and not all arguments can be copied

    def __call__(self, num_envs: int = 1, **env_kwargs: Any) -> VectorEnv:
        if _core.env.is_registered(self.env_id):
            env_kwargs.pop("env_id", None)  # which shoal.envs gives to the single environment of this id
            return make_vec(self.env_id, num_envs, env_kwargs=env_kwargs, **self.arguments)
        spec = copy.deepcopy(gymnasium.spec(self.env_id))
        spec.vector_entry_point = None  # the workers need none, and this one may not be pickled
        return make_vec(functools.partial(gymnasium.make, spec), num_envs, env_kwargs=env_kwargs, **self.arguments)


def register(env_id: str | None = None, /, **arguments: Any) -> None:
    """Makes `gymnasium.make_vec(env_id, …)` return a `shoal.VectorEnv`, with `vectorization_mode="vector_entry_point"` or
    with none: Gymnasium takes an entry point where there is one.

    Args:
        env_id: an id that Gymnasium has registered, or a native one ("shoal/CartPole-v1"); None for all native ones.
        **arguments: of `shoal.make_vec`, for every vector environment made so: num_workers, autoreset_mode, ….

    Raises:
        gymnasium.error.NameNotFound: for an unknown id.
    """
    for name in [known.id for known in _core.env.registered()] if env_id is None else [env_id]:
        entry_point = _EntryPoint(name, arguments)
        if name in registration.registry or not _core.env.is_registered(name):
            spec = gymnasium.spec(name)
            _before.setdefault(name, spec.vector_entry_point)
            spec.vector_entry_point = entry_point
            continue
        native = _core.env.find(name)
        gymnasium.register(
            name,
            vector_entry_point=entry_point,
            reward_threshold=native.reward_threshold,
            max_episode_steps=native.max_episode_steps or None,
        )
        _before[name] = _ABSENT


def unregister(env_id: str | None = None, /) -> None:
    """Undoes register(): of one id, or of all."""
    for name in list(_before) if env_id is None else [env_id]:
        if name not in _before:
            raise gymnasium.error.UnregisteredEnv(f"register({name!r}) has not been called")
        before = _before.pop(name)
        if before is _ABSENT:
            registration.registry.pop(name, None)
        elif name in registration.registry:
            registration.registry[name].vector_entry_point = before
