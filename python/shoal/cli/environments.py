"""Environment ids: which exist, which was meant, and what an id needs that is not installed."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from shoal.cli.console import did_you_mean, fail, wrong_use
from shoal.cli.pins import install
from shoal.vector.extras import lacks, provide

# What ./shoal installs in a source folder once an id asks for it.
_PINS = {
    "shoal[box2d]": "requirements-box2d.txt",
    "shoal[mujoco]": "requirements-mujoco.txt",
    "shoal[atari]": "requirements-atari.txt",
}


def native_ids() -> list[str]:
    from shoal import _core

    return [spec.id for spec in _core.env.registered()]


def gymnasium_ids(older: bool = True) -> list[str]:
    """The registered ids, sorted; without those of which a newer version is registered, unless `older`."""
    import gymnasium

    provide()
    ids = sorted(gymnasium.registry)
    if older:
        return ids
    ids = [name for name in ids if not _is_old_atari(name)]
    newest: dict[str, tuple[int, str]] = {}
    for name in ids:
        stem, _, version = name.rpartition("-v")
        key, number = (stem, int(version)) if stem and version.isdigit() else (name, 0)
        newest[key] = max(newest.get(key, (number, name)), (number, name))
    return sorted(name for _, name in newest.values())


def _is_old_atari(name: str) -> bool:
    """Of the ids that were there before the namespace ALE: five and more for each game that has one in it."""
    import gymnasium

    return "/" not in name and str(gymnasium.registry[name].entry_point).startswith("ale_py")


def install_command(package: str) -> str:
    """The command that installs `package` where this command runs."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package)}"


def resolve(env_id: str) -> str:
    """The full id of an environment that can be made here; a name without a version means the newest.

    Fails with one line that names the nearest for anything else. `module:Env-v0` imports the module first, as
    gymnasium.make does; so does an id alone that a file of the working directory registers, and nothing else does. Nothing
    is built: an environment may be expensive, and the workers build theirs.
    """
    if env_id in native_ids():
        return env_id
    module, colon, name = env_id.rpartition(":")
    if colon:
        _import(module, env_id)
    import gymnasium

    provide(name)
    if not colon and name not in gymnasium.registry and (module := _registered_here(name)):
        return resolve(f"{module}:{name}")
    if name not in gymnasium.registry and not lacks(name):
        name = _newest(name) or _wrong_id(env_id, name)
    if (need := lacks(name)) and not _install(need):
        fail(f"{name} needs {need}, which is not installed:  {install_command(need)}")
    return f"{module}{colon}{name}"


def _install(package: str) -> bool:
    """Installs the pinned version of a package that an id needs. False outside of a source folder with an environment of
    its own, which ./shoal made, and where pip has no such package for this Python."""
    source = Path(__file__).resolve().parents[3]
    pins = _PINS.get(package, "")
    if Path(sys.prefix) != source / ".venv" or not (source / pins).is_file():
        return False
    return install(source, pins, "--only-binary", ":all:")


def _registered_here(name: str) -> str:
    """The module of the working directory that calls `register` with this id; "" without one."""
    files = sorted(path for path in Path.cwd().glob("*.py") if name in _registered_by(path))
    if len(files) > 1:
        wrong_use(
            f"{name} is registered by {' and '.join(path.name for path in files)}: say which, as {files[0].stem}:{name}"
        )
    return files[0].stem if files else ""


def _registered_by(path: Path) -> set[str]:
    """The ids that are written in a file's calls of `register`."""
    try:
        calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    except (OSError, SyntaxError, ValueError):
        return set()
    registering = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == "register"]
    given = [[*call.args[:1], *(word.value for word in call.keywords if word.arg == "id")] for call in registering]
    return {arg.value for args in given for arg in args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}


def _newest(name: str) -> str | None:
    """The newest version of a name that is given without one."""
    versions = _versions(name)
    return versions[-1] if versions and not re.search(r"-v\d+$", name) else None


def _versions(name: str) -> list[str]:
    """The registered versions of an id, oldest first."""
    import gymnasium

    stem = re.sub(r"-v\d+$", "", name)
    numbers = {
        int(other[len(stem) + 2 :]): other
        for other in gymnasium.registry
        if re.fullmatch(rf"{re.escape(stem)}-v\d+", other)
    }
    return [numbers[number] for number in sorted(numbers)]


def _wrong_id(env_id: str, name: str) -> NoReturn:
    if not re.fullmatch(r"(?:[\w:.-]+/)?[\w:.-]+", name):
        wrong_use(f"{env_id!r} is not an environment's id (such as CartPole-v1 or module:Env-v0)")
    if versions := _versions(name):
        wrong_use(f"there is no {name}; the versions of it are {', '.join(versions)}")
    known = [*native_ids(), *gymnasium_ids(older=False)]
    if module := env_id.rpartition(":")[0]:
        env_class = getattr(sys.modules[module], name, None)
        new, entry = (f"{name}-v0", name) if callable(env_class) else (name, "CLASS")
        wrong_use(
            f"{module} registers no environment {name!r}{did_you_mean(name, known)}: write into it  "
            f"gymnasium.register({new!r}, entry_point='{module}:{entry}')  and name {module}:{new}"
        )
    own = f"; one that a module of yours registers is MODULE:{name}" + (
        ", one of a plug-in needs --plugin" if "/" in name else ""
    )
    wrong_use(f"there is no environment {env_id!r}{did_you_mean(name, known)} (shoal envs lists them{own})")


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
