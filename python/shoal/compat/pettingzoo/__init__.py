"""PettingZoo's parallel environments as one vector environment, whose rows are agents.

    envs = shoal.compat.pettingzoo.make_vec(pistonball_v6.parallel_env, 8)
    observations, infos = envs.reset(seed=0)
    observations, rewards, terminated, truncated, infos = envs.step(actions)      # one row an agent of an environment

PettingZoo itself is needed only by environments that import it.
"""

from __future__ import annotations

from shoal.compat.pettingzoo.making import make_vec
from shoal.compat.pettingzoo.parallel_vector_env import ParallelVectorEnv

__all__ = ["ParallelVectorEnv", "make_vec"]
