"""The vector environments that CleanRL's scripts are written for: Gymnasium 0.29's, on Shoal's engine and any Gymnasium.

from shoal.compat.cleanrl import SyncVectorEnv      # was: gym.vector.SyncVectorEnv

An environment whose episode has ended is reset by the same step, and `infos["final_info"]` holds a dict or None for each.
"""

from __future__ import annotations

from shoal.compat.cleanrl.vector_envs import AsyncVectorEnv, SyncVectorEnv
from shoal.names import names_of

__all__ = ["AsyncVectorEnv", "SyncVectorEnv"]

__getattr__ = names_of("shoal.compat.cleanrl", {}, ["gymnasium.vector"], "")
