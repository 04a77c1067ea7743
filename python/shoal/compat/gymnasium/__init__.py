"""Gymnasium's vector environments on Shoal's engine.

from shoal.compat.gymnasium import AsyncVectorEnv, SyncVectorEnv      # the peer's arguments, attributes and errors

shoal.compat.gymnasium.register("CartPole-v1", num_workers=2)
envs = gymnasium.make_vec("CartPole-v1", 64, vectorization_mode="vector_entry_point")

What else `gymnasium.vector` has (AutoresetMode, VectorWrapper, …) is here, too, as it is there.
"""

from __future__ import annotations

from shoal.compat.gymnasium.async_vector_env import AsyncVectorEnv
from shoal.compat.gymnasium.registration import register, unregister
from shoal.compat.gymnasium.sync_vector_env import SyncVectorEnv
from shoal.names import names_of

__all__ = ["AsyncVectorEnv", "SyncVectorEnv", "register", "unregister"]

__getattr__ = names_of("shoal.compat.gymnasium", {}, ["gymnasium.vector"], "")
