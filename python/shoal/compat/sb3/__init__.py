"""Stable-Baselines3's vectorised environments on Shoal's engine.

from shoal.compat.sb3 import SubprocVecEnv, make_vec_env      # the peer's arguments, methods and results

envs = make_vec_env("CartPole-v1", 16, vec_env_cls=SubprocVecEnv)
model = stable_baselines3.A2C("MlpPolicy", envs).learn(100_000)

Stable-Baselines3 is imported with the first of these names that is used; workers import it only where their environments do. What
else its `common.vec_env` and `common.env_util` have (VecNormalize, VecFrameStack, …) is here, too, as it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.compat.sb3.dummy_vec_env import DummyVecEnv
    from shoal.compat.sb3.make_vec_env import make_atari_env, make_vec_env
    from shoal.compat.sb3.subproc_vec_env import SubprocVecEnv

__all__ = ["DummyVecEnv", "SubprocVecEnv", "make_atari_env", "make_vec_env"]

# A worker imports this package for its slots.py, and needs none of these.
__getattr__ = names_of(
    "shoal.compat.sb3",
    {
        "DummyVecEnv": "shoal.compat.sb3.dummy_vec_env",
        "SubprocVecEnv": "shoal.compat.sb3.subproc_vec_env",
        "make_atari_env": "shoal.compat.sb3.make_vec_env",
        "make_vec_env": "shoal.compat.sb3.make_vec_env",
    },
    ["stable_baselines3.common.vec_env", "stable_baselines3.common.env_util"],
    "shoal.compat.sb3 needs Stable-Baselines3:  pip install 'shoal[sb3]'  (2.9 of it needs torch 2.8: to keep an older torch, name "
    "its release too, as in torch==2.6.0)",
)


def __dir__() -> list[str]:
    return sorted(__all__)
