"""Gymnasium's vector environments on Shoal's engine.

from shoal.compat.gymnasium import AsyncVectorEnv, SyncVectorEnv      # the peer's arguments, attributes and errors

shoal.compat.gymnasium.register("CartPole-v1", num_workers=2)
envs = gymnasium.make_vec("CartPole-v1", 64, vectorization_mode="vector_entry_point")
"""

from __future__ import annotations

from shoal.compat.gymnasium.async_vector_env import AsyncVectorEnv
from shoal.compat.gymnasium.registration import register, unregister
from shoal.compat.gymnasium.sync_vector_env import SyncVectorEnv

__all__ = ["AsyncVectorEnv", "SyncVectorEnv", "register", "unregister"]
