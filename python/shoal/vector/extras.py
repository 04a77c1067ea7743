"""Environments whose package is installed on request: which package an id needs, and whether it is here."""

from __future__ import annotations

import importlib
import importlib.util
import re

__all__ = ["is_atari", "lacks", "provide"]

# Where an environment's code lies, the module it imports, and the extra that brings it: ours, or Gymnasium's where we have none.
_EXTRAS = (
    ("gymnasium.envs.box2d", "Box2D", "shoal[box2d]"),
    ("gymnasium.envs.mujoco", "mujoco", "shoal[mujoco]"),
    ("gymnasium.envs.phys2d", "jax", "gymnasium[jax]"),
    ("gymnasium.envs.tabular", "jax", "gymnasium[jax]"),
    ("ale_py", "ale_py", "shoal[atari]"),
)
# Atari's ids exist only once ale_py is imported; these can be told from others without it.
_ATARI = re.compile(r"ALE/.+|[\w-]+NoFrameskip(?:-v\d+)?")


def provide(env_id: str | None = None) -> None:
    """Registers the environments of installed packages that do so only when imported, if `env_id` is not there without."""
    import gymnasium

    if env_id not in gymnasium.registry and importlib.util.find_spec("ale_py") is not None:
        importlib.import_module("ale_py")


def lacks(env_id: str) -> str | None:
    """The package that this id needs and that is not installed, as pip names it."""
    import gymnasium

    spec = gymnasium.registry.get(env_id)
    code = spec.entry_point if spec and isinstance(spec.entry_point, str) else ""
    if spec is None and _ATARI.fullmatch(env_id):
        code = "ale_py"
    for prefix, module, package in _EXTRAS:
        if code.startswith(prefix) and importlib.util.find_spec(module) is None:
            return package
    return None


def is_atari(env_id: str) -> bool:
    """Whether the id is of a game of ale_py, which is installed."""
    import gymnasium

    name = env_id.rpartition(":")[2]
    provide(name)
    spec = gymnasium.registry.get(name)
    return spec is not None and str(spec.entry_point).startswith("ale_py")
