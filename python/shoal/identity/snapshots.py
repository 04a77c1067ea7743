"""`config=`: the state of modules, classes and objects, taken in the parent and put in place in its workers.

What a program sets under `if __name__ == "__main__"` is lost to processes that import its modules anew. A snapshot carries
it over: the module, class or object in the worker is the worker's own, and gets the parent's values, in place, so that
whoever imported it before sees them too.
"""

from __future__ import annotations

import enum
import pickle
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from shoal.identity.restoring import merged, settled
from shoal.reprs import never_raises

if TYPE_CHECKING:
    from shoal.ipc.sharing import Parcel

__all__ = ["Snapshot", "restore", "take", "things"]

_VALUES = (int, float, complex, str, bytes, bool, tuple, frozenset, range, type(None))
_UNPICKLABLE = "unpicklable"


class Snapshot:
    """A thing for `config=` with parts that stay as each worker makes them.

        shoal.make_vec(…, config=[shoal.Snapshot(settings, leave_out=("LOCK", "connection"))])

    What refers to a thing of `config=` refers to the worker's own thing there: attributes, and what is in lists, dicts, sets and
    tuples. Named tuples, frozen sets, keys of dicts, and objects with a rule of pickling of their own refer to copies.

    Args:
        thing: a module, a class, or an object that a module has as a global.
        leave_out: names of its attributes, or "unpicklable" for all that cannot be pickled.
    """

    def __init__(self, thing: Any, leave_out: str | Iterable[str] = ()) -> None:
        self.thing = thing
        self.leave_out = leave_out if leave_out == _UNPICKLABLE else _names(leave_out)

    @never_raises
    def __repr__(self) -> str:
        name = getattr(self.thing, "__name__", type(self.thing).__name__)
        left_out = [self.leave_out] if isinstance(self.leave_out, str) else sorted(self.leave_out)
        return f"<Snapshot of {name}{' without ' + ', '.join(left_out) if left_out else ''}>"


class _Taken(NamedTuple):
    """One thing on its way.

    Attributes:
        kind: "module", "class", "function", "object" or "value".
        where: how a worker finds its own.
        state: attributes by name; of an object or value, itself.
        left_out: attributes (of a dict: keys) of an object that stay as the worker has them.
    """

    kind: str
    where: Any
    state: Any
    left_out: tuple[str, ...] = ()


def things(config: Any) -> Mapping[str, Any]:
    """The things that `config` lists, by their names (Worker.config in this process)."""
    return MappingProxyType({name: _unwrapped(thing) for name, thing in _listed(config)})


def take(config: Any, parcel: Parcel | None = None) -> bytes:
    """The state of what `config` lists, now; what of it is shared goes along in `parcel`.

    Raises:
        PicklingError: naming the attribute that cannot be pickled, and how to leave it out.
        TypeError: for something in a list that no worker has one of its own of.
    """
    from shoal.ipc.pickling import PicklingError, dumps

    taken = {name: _take(name, thing) for name, thing in _listed(config)}
    try:
        return dumps(taken, "config", parcel=parcel)
    except PicklingError as error:
        _raise_unpicklable(taken, error)


def restore(packed: bytes) -> Mapping[str, Any]:
    """Puts the state in place in this process; returns its own things by name (Worker.config)."""
    restored = {}
    memo: dict[int, Any] = {}
    seen: set[int] = set()
    everything: dict[str, _Taken] = pickle.loads(packed)
    for name, taken in everything.items():
        try:
            restored[name] = _put_in_place(taken, memo, seen)
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"config: while {name!r} was put in place in the worker")
            raise
    for name, taken in everything.items():
        restored[name] = _settled(taken, restored[name], memo, seen)
    return MappingProxyType(restored)


# In the parent


def _listed(config: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(config, Mapping):
        for name, thing in config.items():
            if not isinstance(name, str):
                raise TypeError(f"config= takes a mapping from str, got the key {name!r}")
            yield name, thing
        return
    listed = config if isinstance(config, list | tuple) else [config]
    seen = set()
    for i, thing in enumerate(listed):
        name = _name_of(_unwrapped(thing), i)
        if name in seen:
            raise ValueError(f"config= lists {name} twice; give the things names: config={{'name': thing, …}}")
        seen.add(name)
        yield name, thing


def _unwrapped(thing: Any) -> Any:
    return thing.thing if isinstance(thing, Snapshot) else thing


def _name_of(thing: Any, position: int) -> str:
    if isinstance(thing, types.ModuleType):
        return thing.__name__
    if isinstance(thing, type | types.FunctionType):
        return _dotted(thing.__module__, thing.__qualname__)
    place = None if isinstance(thing, _VALUES) else find(thing)
    if place is None:
        raise TypeError(
            f"config[{position}] is a {type(thing).__name__} that is no global of any module, so that workers have none of "
            "their own whose state could be set. Give it a name and read it there: config={'name': …} and "
            "shoal.worker().config['name']; or give it to the environments: env_kwargs=, or the factory's closure"
        )
    return _dotted(place[0], ".".join(place[1]))


def _dotted(module: str, name: str) -> str:
    return name if module == "__main__" else f"{module}.{name}"


def find(thing: Any) -> tuple[str, tuple[str, ...]] | None:
    """Where this process has `thing`: a module and the way from it, as ("settings", ("config",)); also one step into the
    classes beside its own. The module of its class comes first."""
    first = getattr(type(thing), "__module__", "")
    for name in (first, *[name for name in sys.modules if name not in (first, "__main__")], "__main__"):
        for attribute, value in _globals_of(name):
            if value is thing:
                return name, (attribute,)
    for attribute, cls in _globals_of(first):
        if isinstance(cls, type) and cls.__module__ == first:
            for inner, value in list(vars(cls).items()):
                if value is thing:
                    return first, (attribute, inner)
    return None


def _globals_of(module: str) -> list[tuple[str, Any]]:
    found = getattr(sys.modules.get(module), "__dict__", None)
    return list(found.items()) if isinstance(found, dict) else []


def _take(name: str, thing: Any) -> _Taken:
    leave_out: Any = ()
    if isinstance(thing, Snapshot):
        thing, leave_out = thing.thing, thing.leave_out
    if isinstance(thing, types.ModuleType):
        return _Taken("module", thing.__name__, _without(_state_of_module(thing), leave_out, name))
    if isinstance(thing, type):
        return _Taken("class", thing, _without(_state_of_class(thing), leave_out, name))
    if isinstance(thing, types.FunctionType):
        return _Taken("function", thing, _without(dict(vars(thing)), leave_out, name))
    place = None if isinstance(thing, _VALUES) else find(thing)
    left_out: tuple[str, ...] = ()
    if leave_out:
        parts = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {})
        thing = _copy_without(thing, leave_out, name)
        left_out = tuple(parts.keys() - (thing if isinstance(thing, dict) else vars(thing)).keys())
    return _Taken("value", None, thing) if place is None else _Taken("object", place, thing, left_out)


def _state_of_module(module: types.ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if not _is_dunder(name) and not isinstance(value, types.ModuleType) and not _is_code_of(value, module, name)
    }


def _is_code_of(value: Any, module: types.ModuleType, name: str) -> bool:
    """Whether importing the module makes it: a function or class that it defines, under its own name."""
    return (
        isinstance(value, type | types.FunctionType)
        and value.__module__ == module.__name__
        and value.__qualname__ == name
    )


def _state_of_class(cls: type) -> dict[str, Any]:
    if issubclass(cls, enum.Enum):
        return {}
    return {
        name: value
        for name, value in vars(cls).items()
        if not _is_dunder(name)
        and not name.startswith("_abc_")
        and not hasattr(type(value), "__get__")  # functions, properties, slots: code
        and not (isinstance(value, type) and value.__qualname__.startswith(f"{cls.__qualname__}."))
    }


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _without(state: dict[str, Any], leave_out: Any, name: str) -> dict[str, Any]:
    if leave_out == _UNPICKLABLE:
        return {key: value for key, value in state.items() if _can_be_pickled(value)}
    for key in leave_out:
        if key not in state:
            raise ValueError(f"Snapshot(leave_out={key!r}): {name} has no such attribute to leave out")
    return {key: value for key, value in state.items() if key not in leave_out}


def _copy_without(thing: Any, leave_out: Any, name: str) -> Any:
    """A copy of an object that lacks these attributes (of a dict: keys)."""
    if type(thing) is dict:
        return _without(thing, leave_out, name)
    if not hasattr(thing, "__dict__"):
        raise TypeError(
            f"Snapshot(leave_out=…): {name} is a {type(thing).__name__}, which has no attributes to leave out"
        )
    twin = object.__new__(type(thing))
    twin.__dict__.update(_without(vars(thing), leave_out, name))
    return twin


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _can_be_pickled(value: Any) -> bool:
    from shoal.ipc.pickling import PicklingError, dumps

    try:
        dumps(value)
    except PicklingError:
        return False
    return True


def _raise_unpicklable(taken: dict[str, _Taken], error: Exception) -> NoReturn:
    from shoal.ipc.pickling import PicklingError, find_unpicklable

    for name, (kind, _, state, _) in taken.items():
        if _can_be_pickled(state):
            continue
        parts = state.items() if kind in ("module", "class", "function") else [("", state)]
        for key, value in parts:
            if _can_be_pickled(value):
                continue
            path, part, cause = find_unpicklable(value, f"{name}.{key}" if key else name, error)
            attribute = key or _first_step(path.removeprefix(name))
            short = name.rpartition(".")[2]
            raise PicklingError(
                f"config: {path} cannot be sent to the workers ({cause or type(part).__name__}). To leave it as each worker "
                f"makes it: config=[shoal.Snapshot({short}, leave_out=({attribute!r},))]",
                path,
            ) from cause
    raise error


def _first_step(path: str) -> str:
    """ "gate" of ".gate.lock", "key" of "['key'].lock"."""
    if path.startswith("["):
        return path[1:].partition("]")[0].strip("'\"")
    return path.lstrip(".").partition(".")[0].partition("[")[0]


# In the worker


def _put_in_place(taken: _Taken, memo: dict[int, Any], seen: set[int]) -> Any:
    """`memo` and `seen` are those of merged() and settled()."""
    kind, where, state, left_out = taken
    if kind == "value":
        return state
    if kind == "object":
        holder, name = _holder(where)
        old = getattr(holder, name, None)
        parts = old if isinstance(old, dict) else getattr(old, "__dict__", {})
        kept = {key: parts[key] for key in left_out if key in parts}
        seen.update(map(id, kept.values()))
        new = merged(old, state, memo)
        if new is not old:
            setattr(holder, name, new)
        (new if isinstance(new, dict) else getattr(new, "__dict__", {})).update(kept)
        return new
    target = _module(where) if kind == "module" else where
    for name, value in state.items():
        old = vars(target).get(name)
        new = merged(old, value, memo)
        if new is not old or name not in vars(target):
            setattr(target, name, new)
    return target


def _settled(taken: _Taken, thing: Any, memo: dict[int, Any], seen: set[int]) -> Any:
    """What is put in place refers to what is in place."""
    if taken.kind == "value":
        return settled(thing, memo, seen)
    if taken.kind == "object":
        holder, name = _holder(taken.where)
        _settle(holder, name, memo, seen)
        return getattr(holder, name)
    for name in taken.state:
        _settle(thing, name, memo, seen)
    return thing


def _settle(holder: Any, name: str, memo: dict[int, Any], seen: set[int]) -> None:
    old = getattr(holder, name)
    new = settled(old, memo, seen)
    if new is not old:
        setattr(holder, name, new)


def _holder(where: tuple[str, tuple[str, ...]]) -> tuple[Any, str]:
    """The module or class that has an object, and under what name."""
    module, (*outer, name) = where
    holder: Any = _module(module)
    for step in outer:
        holder = getattr(holder, step)
    return holder, name


def _module(name: str) -> types.ModuleType:
    import importlib

    return sys.modules[name] if name in sys.modules else importlib.import_module(name)
