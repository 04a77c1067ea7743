"""Shoal's native environments for code that wants a plain `gymnasium.Env`.

    import gymnasium, shoal.envs

    env = gymnasium.make("shoal/CartPole-v1", render_mode="rgb_array")

`shoal.make_vec("shoal/CartPole-v1", num_envs=64)` does not need this module: there the
engine steps them without Python.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Makes every native id known to `gymnasium.make`. Importing this module has called it once.

    Call it again after a plug-in has registered environments of its own.
    """
    from gymnasium.envs import registration

    from shoal import _core

    for spec in _core.env.registered():
        if spec.id in registration.registry:
            continue
        registration.register(
            id=spec.id,
            entry_point="shoal.envs.native:NativeEnv",
            max_episode_steps=spec.max_episode_steps or None,
            reward_threshold=spec.reward_threshold,
            kwargs={"env_id": spec.id},
        )


register()
