"""Environment ids: which exist, which was meant, and what an id needs that is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path

from shoal.cli.console import did_you_mean, fail, wrong_use

# Where an environment's code lies, the module it imports, and the extra of gymnasium (or package) that brings it.
_EXTRAS = (
    ("gymnasium.envs.box2d", "Box2D", "gymnasium[box2d]"),
    ("gymnasium.envs.mujoco", "mujoco", "gymnasium[mujoco]"),
    ("gymnasium.envs.phys2d", "jax", "gymnasium[jax]"),
    ("gymnasium.envs.tabular", "jax", "gymnasium[jax]"),
    ("ale_py", "ale_py", "gymnasium[atari]"),
)


def native_ids() -> list[str]:
    from shoal import _core

    return [spec.id for spec in _core.env.registered()]


def gymnasium_ids(older: bool = True) -> list[str]:
    """The registered ids, sorted; without those of which a newer version is registered, unless `older`."""
    import gymnasium

    ids = sorted(gymnasium.registry)
    if older:
        return ids
    newest: dict[str, tuple[int, str]] = {}
    for name in ids:
        stem, _, version = name.rpartition("-v")
        key, number = (stem, int(version)) if stem and version.isdigit() else (name, 0)
        newest[key] = max(newest.get(key, (number, name)), (number, name))
    return sorted(name for _, name in newest.values())


def lacks(env_id: str) -> str | None:
    """The package that this registered id needs and that is not installed, as pip names it."""
    import gymnasium

    spec = gymnasium.registry.get(env_id)
    code = spec.entry_point if spec and isinstance(spec.entry_point, str) else ""
    for prefix, module, package in _EXTRAS:
        if code.startswith(prefix) and importlib.util.find_spec(module) is None:
            return package
    return None


def install_command(package: str) -> str:
    """The command that installs `package` where this command runs."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package)}"


def check(env_id: str) -> None:
    """Fails with one line unless `env_id` is the id of an environment that can be made here.

    `module:Env-v0` imports the module first, as gymnasium.make does. Nothing is built: an environment may be expensive,
    and the workers build theirs.
    """
    if env_id in native_ids():
        return
    module, colon, name = env_id.rpartition(":")
    if colon:
        _import(module, env_id)
    if need := lacks(name):
        fail(f"{name} needs {need}, which is not installed:  {install_command(need)}")
    import gymnasium

    if name in gymnasium.registry:
        return
    if not re.fullmatch(r"(?:[\w:.-]+/)?[\w:.-]+?(?:-v\d+)?", name):
        wrong_use(f"{env_id!r} is not an environment's id (such as CartPole-v1 or module:Env-v0)")
    known = [*native_ids(), *gymnasium_ids(older=False)]
    versions = [other for other in gymnasium.registry if re.sub(r"-v\d+$", "", other) == re.sub(r"-v\d+$", "", name)]
    if versions and not re.search(r"-v\d+$", name):
        return  # gymnasium.make takes the newest version of a name without one
    if versions:
        wrong_use(f"there is no {name}; the versions of it are {', '.join(sorted(versions))}")
    wrong_use(f"there is no environment {env_id!r}{did_you_mean(name, known)} (shoal envs lists them)")


def _import(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not (module == error.name or module.startswith(error.name + ".")):
            fail(f"{env_id!r}: importing {module} failed: {error}")
        here = [path.stem for path in Path.cwd().glob("*.py")]
        wrong_use(f"{env_id!r}: there is no module {module!r} here or among the installed{did_you_mean(module, here)}")
    except Exception as error:
        fail(f"{env_id!r}: importing {module} failed: {type(error).__name__}: {error}")
