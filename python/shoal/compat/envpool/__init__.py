"""EnvPool's functions and objects on Shoal's engine.

    import shoal.compat.envpool as envpool      # the peer's names, arguments and results

    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=64, batch_size=16)
    env.async_reset()
    while …:
        obs, rew, term, trunc, info = env.recv()
        env.send(policy(obs), info["env_id"])

EnvPool itself is not needed. Environments are those that `shoal.make_vec` knows: Gymnasium's ids, one's own, and native ones.
"""

from __future__ import annotations

from shoal.compat.envpool.env_pool import EnvPool, EnvSpec
from shoal.compat.envpool.making import list_all_envs, make, make_dm, make_gym, make_gymnasium, make_spec

__version__ = "1.2.5"
"""The EnvPool whose interface this is."""

__all__ = [
    "EnvPool",
    "EnvSpec",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
]
