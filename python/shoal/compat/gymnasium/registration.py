"""How `gymnasium.make_vec` reaches Shoal: by the vector entry points of environment ids."""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any

import gymnasium
from gymnasium.envs import registration

from shoal import _core
from shoal.vector.make import make_vec
from shoal.vector.vector_env import VectorEnv

__all__ = ["register", "unregister"]

_before: dict[str, Any] = {}
"""The vector entry points that register() has replaced, by id."""

_GIVEN = ("env", "num_envs")
"""Arguments of shoal.make_vec that the call of gymnasium.make_vec gives."""

_OPTIONS = frozenset(inspect.signature(make_vec).parameters) - {*_GIVEN, "unknown"}


class _EntryPoint:
    """What `gymnasium.make_vec` calls for one id."""

    def __init__(self, env_id: str, arguments: dict[str, Any]) -> None:
        self.env_id = env_id
        self.env_kwargs = arguments.get("env_kwargs") or {}
        self.arguments = {name: value for name, value in arguments.items() if name != "env_kwargs"}

    def __deepcopy__(self, memo: Any) -> _EntryPoint:
        return self  # gymnasium.make_vec copies specs, and not all arguments can be copied

    def __call__(self, num_envs: int = 1, **env_kwargs: Any) -> VectorEnv:
        env_kwargs = {**self.env_kwargs, **env_kwargs}
        if _core.env.is_registered(self.env_id):
            env_kwargs.pop("env_id", None)  # which shoal.envs gives to the single environment of this id
            return make_vec(self.env_id, num_envs, env_kwargs=env_kwargs, **self.arguments)
        spec = copy.deepcopy(gymnasium.spec(self.env_id))
        spec.vector_entry_point = None  # the workers need none, and this one may not be pickled
        return make_vec(functools.partial(gymnasium.make, spec), num_envs, env_kwargs=env_kwargs, **self.arguments)


def register(env_id: str | None = None, /, **arguments: Any) -> None:
    """Makes `gymnasium.make_vec(env_id, …)` return a `shoal.VectorEnv`, with `vectorization_mode="vector_entry_point"` or
    with none: Gymnasium takes an entry point where there is one.

    Gymnasium gives entry points neither wrappers nor vector_kwargs: `gymnasium.make_vec(env_id, …, wrappers=[…])` and
    `vector_kwargs={…}`, which work without an entry point, raise gymnasium.error.Error from now on. Give register() what they say,
    `wrappers=[…]`, `autoreset_mode=…`; or say `vectorization_mode="sync"` there, which is Gymnasium's own.

    Args:
        env_id: an id that Gymnasium has registered, or a native one ("shoal/CartPole-v1"); None for all native ones, which
            `gymnasium.make` knows then, as after `import shoal.envs`.
        **arguments: of `shoal.make_vec`, for every vector environment made so: num_workers, autoreset_mode, ….

    Raises:
        gymnasium.error.NameNotFound: for an unknown id.
        TypeError: for an argument that `shoal.make_vec` has not.
    """
    _check_names(arguments)
    from shoal import envs

    envs.register()
    for name in [known.id for known in _core.env.registered()] if env_id is None else [env_id]:
        spec = gymnasium.spec(name)
        _before.setdefault(name, spec.vector_entry_point)
        spec.vector_entry_point = _EntryPoint(name, arguments)


def _check_names(arguments: dict[str, Any]) -> None:
    for name in _GIVEN:
        if name in arguments:
            raise TypeError(f"register() takes no {name}: it is what gymnasium.make_vec is called with")
    if unknown := {name: value for name, value in arguments.items() if name not in _OPTIONS}:
        make_vec("", **unknown)  # raises: it knows what stands for the names of others


def unregister(env_id: str | None = None, /) -> None:
    """Undoes register(): of one id, or of all."""
    for name in list(_before) if env_id is None else [env_id]:
        if name not in _before:
            raise gymnasium.error.UnregisteredEnv(f"register({name!r}) has not been called")
        before = _before.pop(name)
        if name in registration.registry:
            registration.registry[name].vector_entry_point = before
