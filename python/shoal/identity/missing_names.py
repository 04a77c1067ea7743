"""Why a name exists in the parent and not in its worker: workers import modules anew.

A worker whose code fails on a name that is not there says which name it missed, and where it looked. The parent looks at
the same place in its own process: where it has the name, it says so, and how to bring the name over.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from typing import Any, NamedTuple

from shoal.identity.snapshots import find

__all__ = ["MissingName", "explain", "missing_names_of"]

_KEY_TYPES = (str, int, float, bool, tuple, bytes, type(None))


class MissingName(NamedTuple):
    """What a worker did not find.

    Attributes:
        kind: "attribute", "name" (a global), "key" (of a dict that is a global) or "env" (a registered id).
        module: where it looked.
        path: the way from there to the object that lacks it.
        name: the attribute, global, key or id.
    """

    kind: str
    module: str
    path: tuple[str, ...]
    name: Any


def missing_names_of(exception: BaseException) -> list[MissingName]:
    """In the worker: what `exception` says that it did not find, most likely place first."""
    if isinstance(exception, AttributeError) and exception.name is not None:
        return _of_object(exception.obj, exception.name)
    if isinstance(exception, NameError) and not isinstance(exception, UnboundLocalError):
        frame = _last_frame(exception)
        return [MissingName("name", frame.f_globals.get("__name__", ""), (), exception.name)] if frame else []
    if type(exception) is KeyError and exception.args and isinstance(exception.args[0], _KEY_TYPES):
        return _of_key(exception)
    if any(cls.__name__ == "UnregisteredEnv" for cls in type(exception).__mro__):
        return [MissingName("env", "", (), name) for name in re.findall(r"`([^`]+)`", str(exception))[:1]]
    return []


def _of_object(obj: Any, name: str) -> list[MissingName]:
    if isinstance(obj, types.ModuleType):
        return [MissingName("attribute", obj.__name__, (), name)]
    missing = []
    if not isinstance(obj, type):
        place = find(obj)
        if place is not None:
            missing.append(MissingName("attribute", *place, name))
        obj = type(obj)
    for cls in obj.__mro__:
        if cls.__module__ != "builtins" and "<locals>" not in cls.__qualname__:
            missing.append(MissingName("attribute", cls.__module__, tuple(cls.__qualname__.split(".")), name))
    return missing


def _of_key(exception: KeyError) -> list[MissingName]:
    frame = _last_frame(exception)
    if frame is None:
        return []
    key, module, missing = exception.args[0], frame.f_globals.get("__name__", ""), []
    for used in frame.f_code.co_names:
        value = frame.f_globals.get(used)
        if isinstance(value, dict) and key not in value:
            missing.append(MissingName("key", module, (used,), key))
        elif isinstance(value, types.ModuleType | type):
            for inner in frame.f_code.co_names:
                found = vars(value).get(inner)
                if isinstance(found, dict) and key not in found:
                    missing.append(_in_holder(value, inner, key))
    return missing


def _in_holder(holder: types.ModuleType | type, name: str, key: Any) -> MissingName:
    if isinstance(holder, types.ModuleType):
        return MissingName("key", holder.__name__, (name,), key)
    return MissingName("key", holder.__module__, (*holder.__qualname__.split("."), name), key)


def _last_frame(exception: BaseException) -> types.FrameType | None:
    trace = exception.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame


# In the parent


def explain(missing: list[MissingName]) -> str | None:
    """Why the worker did not find it, and the fix, if this process has it."""
    for one in missing:
        text = _explain_env(one) if one.kind == "env" else _explain_twin(one)
        if text is not None:
            return text
    return None


def _explain_twin(missing: MissingName) -> str | None:
    holder: Any = sys.modules.get(missing.module)
    if holder is None:
        return None
    for step in missing.path:
        holder = inspect.getattr_static(holder, step, None)
    found = isinstance(holder, dict) and missing.name in holder if missing.kind == "key" else _has(holder, missing.name)
    if not found:
        return None
    thing = ".".join(missing.path) or missing.module
    whole = f"{thing}[{missing.name!r}]" if missing.kind == "key" else f"{thing}.{missing.name}"
    if missing.module == "__main__" and not missing.path:
        return (
            f"the caller's program has {missing.name!r} now, but the function that was sent to the worker was made before. "
            f"Set it before make_vec() is called, or pass it: make_vec(…, config={{{missing.name!r}: {missing.name}}}) and "
            f"shoal.worker().config[{missing.name!r}]"
        )
    short = missing.path[-1] if missing.path else missing.module.rpartition(".")[2]
    return (
        f"the caller's process has {whole}, the worker has not: it was set after {missing.module} was imported (under "
        f'`if __name__ == "__main__"`?), and workers import {missing.module} anew. Take it along as it is when make_vec() is '
        f"called: make_vec(…, config=[{short}])"
    )


def _has(holder: Any, name: str) -> bool:
    nothing = object()
    return holder is not None and inspect.getattr_static(holder, name, nothing) is not nothing


def _explain_env(missing: MissingName) -> str | None:
    registration = sys.modules.get("gymnasium.envs.registration")
    known = [env_id for env_id in getattr(registration, "registry", ()) if env_id.rpartition("-v")[0] == missing.name]
    known += [env_id for env_id in getattr(registration, "registry", ()) if env_id == missing.name]
    if not known:
        return None
    return (
        f"{known[-1]!r} is registered in the caller's process, but not in the worker: it was registered after make_vec() was "
        "called, or with arguments that cannot be pickled. Register it before; or in the worker, with make_vec(…, setup=…) "
        "or by importing the module that does"
    )
