"""Stable-Baselines3's vectorised environments on Shoal's engine.

from shoal.compat.sb3 import SubprocVecEnv, make_vec_env      # the peer's arguments, methods and results

envs = make_vec_env("CartPole-v1", 16, vec_env_cls=SubprocVecEnv)
model = stable_baselines3.A2C("MlpPolicy", envs).learn(100_000)

Stable-Baselines3 is imported with the first of these names that is used; workers import it only where their environments do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.compat.sb3.dummy_vec_env import DummyVecEnv
    from shoal.compat.sb3.make_vec_env import make_vec_env
    from shoal.compat.sb3.subproc_vec_env import SubprocVecEnv

__all__ = ["DummyVecEnv", "SubprocVecEnv", "make_vec_env"]

# A worker imports this package for its slots.py, and needs none of these.
_MODULE_OF = {
    "DummyVecEnv": "shoal.compat.sb3.dummy_vec_env",
    "SubprocVecEnv": "shoal.compat.sb3.subproc_vec_env",
    "make_vec_env": "shoal.compat.sb3.make_vec_env",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'shoal.compat.sb3' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stable_baselines3":
            raise
        raise ModuleNotFoundError(
            "shoal.compat.sb3 needs Stable-Baselines3:  pip install 'shoal[sb3]'", name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
