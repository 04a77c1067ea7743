"""moolib's EnvPool on Shoal's engine: batches of environments that are stepped in turns, each step a future.

    from shoal.compat.moolib import EnvPool      # was: from moolib import EnvPool

    envs = EnvPool(create_env, num_processes=8, batch_size=32, num_batches=2)
    futures = [envs.step(i, torch.zeros(32, dtype=torch.int64)) for i in range(2)]      # the first steps are resets
    while …:
        for i in range(2):
            obs = futures[i].result()                                                   # workers step the other batch
            futures[i] = envs.step(i, policy(obs["state"], obs["done"]))

moolib itself is not needed.
"""

from __future__ import annotations

from shoal.compat.moolib.env_pool import EnvPool, EnvStepperFuture

__all__ = ["EnvPool", "EnvStepperFuture"]
