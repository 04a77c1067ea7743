"""What a worker takes over from its parent's interpreter: search path, arguments, folder, warning filters, variables, what
multiprocessing's own processes have, and the attributes of its process.

A zygote takes it over once, when it starts. A call carries only what has changed in the parent since then, which is
mostly nothing.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import warnings
from collections.abc import Container
from typing import Any

from shoal.process import _attributes, stock

Settings = dict[str, Any]


def capture(plain: bool = False) -> Settings:
    """Of this process, now; `plain`: for processes that take over multiprocessing's part by themselves."""
    return {
        "path": search_path(),
        "argv": [str(argument) for argument in sys.argv],
        "folder": _folder(),
        "filters": list(warnings.filters),
        "environ": dict(os.environ),
        "multiprocessing": None if plain else stock.capture(),
        "attributes": _attributes.capture(),
    }


def search_path() -> list[str]:
    """Where modules are found."""
    return [os.path.abspath(entry) for entry in sys.path]  # "" is the folder of this moment


def changes(before: Settings, now: Settings, fixed: Container[str] = ()) -> Settings:
    """What turns `before` into `now`. Variables become a dict of new values, None for those that are gone; those in
    `fixed` and those of launchers (torchrun, MPI) are left as they are. Attributes go along whole: a zygote that was started
    anew has those of that moment."""
    result = {name: value for name, value in now.items() if name != "environ" and before[name] != value}
    result["attributes"] = now["attributes"]
    old, new = before["environ"], now["environ"]
    if old != new:
        from shoal import _core

        variables = {name: value for name, value in new.items() if old.get(name) != value}
        variables |= dict.fromkeys(old.keys() - new.keys())
        result["environ"] = {
            name: value
            for name, value in variables.items()
            if name not in fixed and not _core.process.is_launcher_variable(name)
        }
    return result


def launcher_variables() -> list[str]:
    """The variables by which a launcher (torchrun, mpirun) told this process its place in a group, as it was started with
    them. What the program has set itself since then, of the same name, is its own."""
    from shoal import _core

    started_with = _started_with()
    return [
        name
        for name, value in os.environ.items()
        if _core.process.is_launcher_variable(name) and started_with.get(name) == value
    ]


def own_launcher_variables() -> dict[str, str]:
    """Those that the program has set itself: for processes that it starts to be a group (MASTER_ADDR, RANK …)."""
    from shoal import _core

    hidden = set(launcher_variables())
    return {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and _core.process.is_launcher_variable(name)
    }


@functools.cache
def _started_with() -> dict[str, str]:
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def encode(settings: Settings) -> Settings:
    """With the warning filters pickled one by one: one whose category cannot be found elsewhere is left out alone, and so is
    what a package says about itself. It says so again where it is imported, which the filter alone must not cause: torch has one."""
    if "filters" not in settings:
        return settings
    others = (each for each in settings["filters"] if not _is_packages_own(each))
    return {**settings, "filters": [data for data in map(_pickled, others) if data]}


def apply(settings: Settings) -> None:
    """Takes over what is there of encoded settings; a variable of None is removed."""
    if "path" in settings:
        sys.path[:] = settings["path"]
    if "argv" in settings:
        sys.argv[:] = settings["argv"]
    if settings.get("folder") is not None:
        os.chdir(settings["folder"])
    if "filters" in settings:
        _set_filters(settings["filters"])
    stock.take_over(settings.get("multiprocessing"))
    for name, value in settings.get("environ", {}).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it has been removed; the worker inherits what this process has
        return None


def _is_packages_own(warning_filter: tuple[Any, ...]) -> bool:
    """Whether its category is of the package whose modules it is about."""
    _, _, category, modules, _ = warning_filter
    package = category.__module__.partition(".")[0]
    return package != "builtins" and getattr(modules, "pattern", modules or "").startswith(package)


def _pickled(warning_filter: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps(warning_filter)
    except Exception:  # a category that only exists in the caller's __main__
        return b""


def _set_filters(pickled: list[bytes]) -> None:
    filters = []
    for data in pickled:
        try:
            filters.append(pickle.loads(data))
        except Exception:  # a category of a module that only the parent has
            continue
    warnings.resetwarnings()
    warnings.filters.extend(filters)  # type: ignore[attr-defined]  # a list, which typeshed does not promise
