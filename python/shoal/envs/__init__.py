"""Shoal's native environments for code that wants a plain `gymnasium.Env`.

    import gymnasium, shoal.envs

    env = gymnasium.make("shoal/CartPole-v1", render_mode="rgb_array")

`shoal.make_vec("shoal/CartPole-v1", num_envs=64)` does not need this module: there the
engine steps them without Python.
"""

from __future__ import annotations

import os

__all__ = ["load_plugin", "register"]


def register() -> None:
    """Makes every native id known to `gymnasium.make`. Importing this module has called it once.

    load_plugin() calls it for what the plug-in registers, and shoal.compat.gymnasium.register() first of all.
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


def _is_of_gymnasium(env_id: str) -> bool:
    from gymnasium.envs import registration

    from shoal import _core

    return env_id in registration.registry and not _core.env.is_registered(env_id)


def load_plugin(path: str | os.PathLike[str]) -> list[str]:
    """Loads environments from a shared library of C++ (`examples/plugin_env` of the sources is one) and returns their ids.

    `shoal.make_vec` and `gymnasium.make` know them from now on, here and in worker processes that start later: the path is
    added to the variable SHOAL_PLUGINS. A library that is loaded already is not loaded again.

    Raises:
        ValueError: for a file that is not there, is no plug-in, was built for another Shoal, needs what is missing, or
            registers an id that is taken, here or by Gymnasium, has changed since it was loaded, and for a path with a colon, which SHOAL_PLUGINS has between paths. Nothing is
            registered then.
    """
    from shoal import _core

    where = os.path.realpath(os.fspath(path))
    if ":" in where:
        raise ValueError(
            f"load_plugin({os.fspath(path)!r}): {where} has a ':', which separates the paths of SHOAL_PLUGINS, by which worker "
            "processes find a plug-in; move it, or rename what has the ':'"
        )
    ids = _core.env.load_plugin(os.fspath(path), _is_of_gymnasium)
    named = [name for name in os.environ.get("SHOAL_PLUGINS", "").split(":") if name]
    missing = [name for name in _core.env.loaded_plugins() if name not in named]
    os.environ["SHOAL_PLUGINS"] = ":".join([*named, *missing])
    register()
    return ids


register()
