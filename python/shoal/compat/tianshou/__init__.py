"""tianshou's vectorised environments on Shoal's engine.

from shoal.compat.tianshou import SubprocVectorEnv      # the peer's arguments, methods and results

train_envs = SubprocVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
collector = tianshou.data.Collector(algorithm, train_envs, buffer)

tianshou is imported with the first of these names that is used; workers import it only where their environments do. What else
`tianshou.env` has (VectorEnvNormObs, PettingZooEnv, …) is here, too, as it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal.compat.tianshou.dummy_vector_env import DummyVectorEnv
    from shoal.compat.tianshou.subproc_vector_env import ShmemVectorEnv, SubprocVectorEnv

__all__ = ["DummyVectorEnv", "ShmemVectorEnv", "SubprocVectorEnv"]

# A worker imports this package for its slot.py, and needs none of these.
__getattr__ = names_of(
    "shoal.compat.tianshou",
    {
        "DummyVectorEnv": "shoal.compat.tianshou.dummy_vector_env",
        "ShmemVectorEnv": "shoal.compat.tianshou.subproc_vector_env",
        "SubprocVectorEnv": "shoal.compat.tianshou.subproc_vector_env",
    },
    ["tianshou.env"],
    "shoal.compat.tianshou needs tianshou:  pip install 'shoal[tianshou]'",
)


def __dir__() -> list[str]:
    return sorted(__all__)
