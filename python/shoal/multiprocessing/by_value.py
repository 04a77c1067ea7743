"""What cloudpickle leaves out of objects that travel by value: members of enums, slots, and caches of functools."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

import cloudpickle

__all__ = ["LruCache", "reducers", "whole"]

LruCache = type(functools.lru_cache(len))

_CANNOT_BE_LOADED = {"PyCFuncPtrType": "a function type", "PyCArrayType": "an array type"}


def whole(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """`reduced` is what cloudpickle makes of a class that travels by value; returns it with what is missing.

    Raises:
        TypeError: for a function type of ctypes, such as a CDLL has, or an array type, which could not be loaded.
    """
    if kind := _CANNOT_BE_LOADED.get(type(cls).__name__):
        raise TypeError(f"cannot pickle {cls.__name__!r}, {kind} of ctypes")
    if issubclass(cls, Enum):
        return _with_members(cls, reduced)
    makes_its_slots = typing.NamedTuple in vars(cls).get("__orig_bases__", ())
    return _with_slots(cls, reduced) if "__slots__" in vars(cls) and not makes_its_slots else reduced


# --- enums -------------------------------------------------------------------------------------------------------------


def _with_members(cls: type[Enum], reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """With aliases, what `__new__` and `__init__` have set on members, and the data of members that are ints, bytes, …"""
    *_, number, _ = reduced[1]
    members = {name: (member._value_, _arguments_of(member)) for name, member in cls.__members__.items()}
    options = {"metaclass": type(cls)}
    if getattr(cls, "_boundary_", None) is not None:  # of flags
        options["boundary"] = cls._boundary_  # type: ignore[attr-defined]  # Flag has it
    arguments = (cls.__bases__, cls.__name__, cls.__qualname__, cls.__module__, options, members, number)
    attributes = {name: value for name, value in reduced[2][0].items() if name not in members}
    set_on_members = {
        each: {name: value for name, value in vars(member).items() if not name[0] == name[-1] == "_"}
        for each, member in cls.__members__.items()
    }
    return _make_enum, arguments, (attributes, set_on_members), None, None, _set_enum_state


def _arguments_of(member: Any) -> tuple[Any, ...]:
    """What `__new__` of its data type makes its data of."""
    kind = member._member_type_
    if hasattr(kind, "__getnewargs__"):
        return tuple(kind.__getnewargs__(member))
    return () if kind.__reduce__ is object.__reduce__ else tuple(kind.__reduce__(member)[1])


def _make_enum(
    bases: tuple[type, ...],
    name: str,
    qualname: str,
    module: str,
    options: dict[str, Any],
    members: dict[str, tuple[Any, tuple[Any, ...]]],
    number: str,
) -> type:
    rest = iter(members.values())

    def new(cls: Any, *_: Any) -> Any:
        value, arguments = next(rest)
        member = cls._member_type_.__new__(cls, *arguments)
        member._value_ = value
        return member

    def fill(names: dict[str, Any]) -> None:
        own = {"__module__": module, "__qualname__": qualname, "__new__": new, "__init__": lambda *_: None}
        for each, value in {**own, **dict.fromkeys(members)}.items():
            names[each] = value  # update() makes no members before Python 3.11

    cls: Any = types.new_class(name, bases, options, fill)
    del cls.__init__, cls.__new_member__
    return cloudpickle.cloudpickle._lookup_class_or_track(number, cls)  # type: ignore[no-any-return]  # has no types


def _set_enum_state(cls: type[Enum], state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    attributes, set_on_members = state
    cloudpickle.cloudpickle._class_setstate(cls, (attributes, {}))
    for name, values in set_on_members.items():
        vars(cls.__members__[name]).update(values)


# --- slots -------------------------------------------------------------------------------------------------------------


def _with_slots(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """With `__slots__` where the class is made: set later, they make no slots."""
    make, (*first, names, number, extra), (attributes, more), *rest = reduced
    names = {**names, "__slots__": vars(cls)["__slots__"]}
    attributes = {name: value for name, value in attributes.items() if name != "__slots__" and not _is_slot(cls, value)}
    return make, (*first, names, number, extra), (attributes, more), *rest


def _is_slot(cls: type, value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType) and value.__objclass__ is cls


# --- caches ------------------------------------------------------------------------------------------------------------


def _reduce_lru_cache(cached: Any) -> Any:
    """The function, with an empty cache; by name where an import finds it."""
    if cloudpickle.cloudpickle._lookup_module_and_qualname(cached) is not None:
        return cached.__qualname__
    attributes = {
        name: value for name, value in vars(cached).items() if name not in ("__wrapped__", "cache_parameters")
    }
    return _make_lru_cache, (cached.__wrapped__, cached.cache_parameters()), attributes


def _make_lru_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_cached_property(cached: Any) -> Any:
    """Without the lock that it has before Python 3.12."""
    attributes = {name: value for name, value in vars(cached).items() if name != "lock"}
    return functools.cached_property, (cached.func,), attributes


reducers: dict[type, Callable[[Any], Any]] = {
    LruCache: _reduce_lru_cache,
    functools.cached_property: _reduce_cached_property,
}
