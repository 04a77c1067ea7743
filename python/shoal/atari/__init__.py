"""Atari's games as they are learned from: preprocessed, in one environment without wrappers.

with shoal.make_vec("ALE/Pong-v5", num_envs=8, atari=True) as envs: ...            # 4 x 84 x 84, grey
shoal.learn.train("ALE/Pong-v5")                                                    # takes it by default
env = shoal.atari.AtariEnv("ALE/Pong-v5", shoal.AtariPreprocessing(noop_max=0))     # one, as a gymnasium.Env
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shoal.atari.preprocessing import AtariPreprocessing

if TYPE_CHECKING:
    from shoal.atari.env import AtariEnv

__all__ = ["AtariEnv", "AtariPreprocessing"]


def __getattr__(name: str) -> Any:
    if name == "AtariEnv":  # with Gymnasium
        value = importlib.import_module("shoal.atari.env").AtariEnv
        globals()[name] = value
        return value
    raise AttributeError(f"module 'shoal.atari' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
