"""`make_vec_env` and `make_atari_env` of `stable_baselines3.common.env_util`, whose environments are Shoal's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stable_baselines3.common import env_util
from stable_baselines3.common.vec_env import VecEnv

from shoal.compat.sb3.dummy_vec_env import DummyVecEnv

__all__ = ["make_atari_env", "make_vec_env"]

_DEFAULT = 7
"""Position of `vec_env_cls` among the peer's arguments, of both functions."""


@functools.wraps(env_util.make_vec_env)
def make_vec_env(*args: Any, **kwargs: Any) -> VecEnv:
    """As the peer's, with its arguments; the class is `shoal.compat.sb3.DummyVecEnv` where none is given."""
    return _ours(env_util.make_vec_env, args, kwargs)


@functools.wraps(env_util.make_atari_env)
def make_atari_env(*args: Any, **kwargs: Any) -> VecEnv:
    """As the peer's, with its arguments and its wrappers; the class is `shoal.compat.sb3.DummyVecEnv` where none is given."""
    return _ours(env_util.make_atari_env, args, kwargs)


def _ours(make: Callable[..., VecEnv], args: tuple[Any, ...], kwargs: dict[str, Any]) -> VecEnv:
    if len(args) > _DEFAULT:
        if args[_DEFAULT] is None:
            args = (*args[:_DEFAULT], DummyVecEnv, *args[_DEFAULT + 1 :])
    elif kwargs.get("vec_env_cls") is None:
        kwargs["vec_env_cls"] = DummyVecEnv
    return make(*args, **kwargs)
