"""Gives an object the state of another of its kind, in place, so that all who refer to it see it."""

from __future__ import annotations

from typing import Any

__all__ = ["merged", "settled"]


def merged(old: Any, new: Any, memo: dict[int, Any]) -> Any:
    """What is to stand where `old` stands: `old` itself with the state of `new` where that can be done, else `new`.

    In place are: dicts, lists and sets, arrays of the same shape, and objects of the same class whose state is their
    attributes (not those that say by themselves how they are pickled). What is in lists and sets is not: those of `old` have
    nothing to do with those of `new`. settled() sees to what they refer to.

    Args:
        memo: what has become of parts of `new` already, by id; the same for all parts of one snapshot.
    """
    if old is new or old is None or type(old) is not type(new):
        return new
    if id(new) in memo:
        return memo[id(new)][1]
    put = _in_place_by_type(old, new)
    if put is None:
        return new
    memo[id(new)] = (new, old)  # `new` too: while it lives its id is its own
    put(old, new, memo)
    return old


def settled(thing: Any, memo: dict[int, Any], seen: set[int]) -> Any:
    """What is to stand where `thing` stands once all parts of a snapshot are merged: in the place of a part of the snapshot
    that another object has become, that object, here and inside of what `thing` is made of.

    Inside of: dicts (their values), lists, sets and tuples, and objects whose state is their attributes. Named tuples, frozen
    sets, keys, and objects that say by themselves how they are pickled keep what they refer to.

    Args:
        memo: merged()'s.
        seen: ids of what is settled; the same for all parts of one snapshot.
    """
    if id(thing) in memo:
        thing = memo[id(thing)][1]
    if type(thing) is tuple:
        parts = tuple(settled(part, memo, seen) for part in thing)
        return thing if all(part is old for part, old in zip(parts, thing, strict=True)) else parts
    if id(thing) in seen:
        return thing
    if isinstance(thing, dict):
        seen.add(id(thing))
        _settle_values(thing, memo, seen)
    elif isinstance(thing, list):
        seen.add(id(thing))
        for i, part in enumerate(thing):
            if (new := settled(part, memo, seen)) is not part:
                thing[i] = new
    elif isinstance(thing, set):
        seen.add(id(thing))
        parts_of_set = [(part, settled(part, memo, seen)) for part in thing]
        if any(new is not part for part, new in parts_of_set):
            thing.clear()
            thing.update(new for _, new in parts_of_set)
    elif _is_plain(thing):
        seen.add(id(thing))
        _settle_values(getattr(thing, "__dict__", {}), memo, seen)
        of_slots = {name: getattr(thing, name) for name in _slots(type(thing)) if hasattr(thing, name)}
        for name in _settle_values(of_slots, memo, seen):
            object.__setattr__(thing, name, of_slots[name])
    return thing


def _settle_values(parts: dict[Any, Any], memo: dict[int, Any], seen: set[int]) -> list[Any]:
    """Returns the keys of those that are others now."""
    changed = []
    for key, part in parts.items():
        new = settled(part, memo, seen)
        if new is not part:
            parts[key] = new
            changed.append(key)
    return changed


def _in_place_by_type(old: Any, new: Any) -> Any:
    if isinstance(old, dict):
        return _dict
    if isinstance(old, list):
        return _list
    if isinstance(old, set):
        return _set
    if type(old).__module__ == "numpy" and type(old).__name__ == "ndarray":
        same = old.shape == new.shape and old.dtype == new.dtype and old.flags.writeable and not old.dtype.hasobject
        return _array if same else None
    return _attributes if _is_plain(old) else None


def _is_plain(thing: Any) -> bool:
    """Whether the attributes are all of its state, and pickling has no other rule for it."""
    cls: Any = type(thing)
    if isinstance(thing, type) or not (hasattr(thing, "__dict__") or _slots(cls)):
        return False
    return (
        cls.__reduce__ is object.__reduce__
        and cls.__reduce_ex__ is object.__reduce_ex__
        and getattr(cls, "__setstate__", None) is None
        and getattr(cls, "__getstate__", None) is getattr(object, "__getstate__", None)
        and cls.__basicsize__ <= object.__basicsize__ + 8 * (2 + len(_slots(cls)))
    )


def _slots(cls: type) -> list[str]:
    names = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _dict(old: dict[Any, Any], new: dict[Any, Any], memo: dict[int, Any]) -> None:
    values = {key: merged(old.get(key), value, memo) for key, value in new.items()}
    old.clear()
    old.update(values)


def _list(old: list[Any], new: list[Any], memo: dict[int, Any]) -> None:
    old[:] = new


def _set(old: set[Any], new: set[Any], memo: dict[int, Any]) -> None:
    old.clear()
    old.update(new)


def _array(old: Any, new: Any, memo: dict[int, Any]) -> None:
    old[...] = new


def _attributes(old: Any, new: Any, memo: dict[int, Any]) -> None:
    if hasattr(new, "__dict__"):
        _dict(vars(old), vars(new), memo)
    for name in _slots(type(new)):
        if hasattr(new, name):
            object.__setattr__(old, name, merged(getattr(old, name, None), getattr(new, name), memo))
