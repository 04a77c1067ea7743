"""What a worker takes over from its parent's interpreter: search path, arguments, folder, warning filters, variables.

A zygote takes it over once, when it starts. A call carries only what has changed in the parent since then, which is
mostly nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Container
from typing import Any

Settings = dict[str, Any]


def capture() -> Settings:
    """Of this process, now."""
    return {
        "path": [os.path.abspath(entry) for entry in sys.path],  # "" is the folder of this moment
        "argv": [str(argument) for argument in sys.argv],
        "folder": _folder(),
        "filters": list(warnings.filters),
        "environ": dict(os.environ),
    }


def changes(before: Settings, now: Settings, fixed: Container[str] = ()) -> Settings:
    """What turns `before` into `now`. Variables become a dict of new values, None for those that are gone; those in
    `fixed` and those of launchers (torchrun, MPI) are left as they are."""
    result = {name: value for name, value in now.items() if name != "environ" and before[name] != value}
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


def encode(settings: Settings) -> Settings:
    """With the warning filters pickled one by one: one whose category cannot be found elsewhere is left out alone."""
    if "filters" not in settings:
        return settings
    return {**settings, "filters": [data for data in map(_pickled, settings["filters"]) if data]}


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
    warnings.filters.extend(filters)
