"""tianshou's vectorised environments on Shoal's engine.

from shoal.compat.tianshou import SubprocVectorEnv      # the peer's arguments, methods and results

train_envs = SubprocVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
collector = tianshou.data.Collector(algorithm, train_envs, buffer)

tianshou is imported with the first of these names that is used; workers import it only where their environments do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.compat.tianshou.dummy_vector_env import DummyVectorEnv
    from shoal.compat.tianshou.subproc_vector_env import ShmemVectorEnv, SubprocVectorEnv

__all__ = ["DummyVectorEnv", "ShmemVectorEnv", "SubprocVectorEnv"]

# A worker imports this package for its slot.py, and needs none of these.
_MODULE_OF = {
    "DummyVectorEnv": "shoal.compat.tianshou.dummy_vector_env",
    "ShmemVectorEnv": "shoal.compat.tianshou.subproc_vector_env",
    "SubprocVectorEnv": "shoal.compat.tianshou.subproc_vector_env",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'shoal.compat.tianshou' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "tianshou":
            raise
        raise ModuleNotFoundError(
            "shoal.compat.tianshou needs tianshou:  pip install 'shoal[tianshou]'", name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
