"""Why a name exists in the parent and not in its worker: workers import modules anew.

A worker whose code fails on a name that is not there says where it looked (a clue); the parent looks at the same place of
its own, and, where it has the name, says so and how to bring it over.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from typing import Any, NamedTuple

from shoal.identity.snapshots import find

__all__ = ["Clue", "clue_of", "explain"]

_KEY_TYPES = (str, int, float, bool, tuple, bytes, type(None))


class Clue(NamedTuple):
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


def clue_of(exception: BaseException) -> list[Clue]:
    """In the worker: what `exception` says that it did not find, most likely place first."""
    if isinstance(exception, AttributeError) and exception.name is not None:
        return _of_object(exception.obj, exception.name)
    if isinstance(exception, NameError) and not isinstance(exception, UnboundLocalError):
        frame = _last_frame(exception)
        return [Clue("name", frame.f_globals.get("__name__", ""), (), exception.name)] if frame else []
    if type(exception) is KeyError and exception.args and isinstance(exception.args[0], _KEY_TYPES):
        return _of_key(exception)
    if any(cls.__name__ == "UnregisteredEnv" for cls in type(exception).__mro__):
        return [Clue("env", "", (), name) for name in re.findall(r"`([^`]+)`", str(exception))[:1]]
    return []


def _of_object(obj: Any, name: str) -> list[Clue]:
    if isinstance(obj, types.ModuleType):
        return [Clue("attribute", obj.__name__, (), name)]
    clues = []
    if not isinstance(obj, type):
        place = find(obj)
        if place is not None:
            clues.append(Clue("attribute", *place, name))
        obj = type(obj)
    for cls in obj.__mro__:
        if cls.__module__ != "builtins" and "<locals>" not in cls.__qualname__:
            clues.append(Clue("attribute", cls.__module__, tuple(cls.__qualname__.split(".")), name))
    return clues


def _of_key(exception: KeyError) -> list[Clue]:
    frame = _last_frame(exception)
    if frame is None:
        return []
    key, module, clues = exception.args[0], frame.f_globals.get("__name__", ""), []
    for used in frame.f_code.co_names:
        value = frame.f_globals.get(used)
        if isinstance(value, dict) and key not in value:
            clues.append(Clue("key", module, (used,), key))
        elif isinstance(value, types.ModuleType | type):
            for inner in frame.f_code.co_names:
                found = vars(value).get(inner)
                if isinstance(found, dict) and key not in found:
                    clues.append(_in_holder(value, inner, key))
    return clues


def _in_holder(holder: types.ModuleType | type, name: str, key: Any) -> Clue:
    if isinstance(holder, types.ModuleType):
        return Clue("key", holder.__name__, (name,), key)
    return Clue("key", holder.__module__, (*holder.__qualname__.split("."), name), key)


def _last_frame(exception: BaseException) -> types.FrameType | None:
    trace = exception.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else trace.tb_frame


# In the parent


def explain(clues: list[Clue]) -> str | None:
    """Why the worker did not find it, and the fix, if this process has it."""
    for clue in clues:
        text = _explain_env(clue) if clue.kind == "env" else _explain_twin(clue)
        if text is not None:
            return text
    return None


def _explain_twin(clue: Clue) -> str | None:
    holder: Any = sys.modules.get(clue.module)
    if holder is None:
        return None
    for step in clue.path:
        holder = inspect.getattr_static(holder, step, None)
    found = isinstance(holder, dict) and clue.name in holder if clue.kind == "key" else _has(holder, clue.name)
    if not found:
        return None
    thing = ".".join(clue.path) or clue.module
    whole = f"{thing}[{clue.name!r}]" if clue.kind == "key" else f"{thing}.{clue.name}"
    if clue.module == "__main__" and not clue.path:
        return (
            f"the caller's program has {clue.name!r} now, but the function that was sent to the worker was made before. "
            f"Set it before make_vec() is called, or pass it: make_vec(…, config={{{clue.name!r}: {clue.name}}}) and "
            f"shoal.worker().config[{clue.name!r}]"
        )
    short = clue.path[-1] if clue.path else clue.module.rpartition(".")[2]
    return (
        f"the caller's process has {whole}, the worker has not: it was set after {clue.module} was imported (under "
        f'`if __name__ == "__main__"`?), and workers import {clue.module} anew. Take it along as it is when make_vec() is '
        f"called: make_vec(…, config=[{short}])"
    )


def _has(holder: Any, name: str) -> bool:
    nothing = object()
    return holder is not None and inspect.getattr_static(holder, name, nothing) is not nothing


def _explain_env(clue: Clue) -> str | None:
    registration = sys.modules.get("gymnasium.envs.registration")
    known = [env_id for env_id in getattr(registration, "registry", ()) if env_id.rpartition("-v")[0] == clue.name]
    known += [env_id for env_id in getattr(registration, "registry", ()) if env_id == clue.name]
    if not known:
        return None
    return (
        f"{known[-1]!r} is registered in the caller's process, but not in the worker. Give make_vec() the id itself, which "
        "takes its registration along; or register it in the worker, with make_vec(…, setup=…) or by importing the module "
        "that does"
    )
