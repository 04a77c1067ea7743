"""What a process has done to globals and classes of `__main__`, kept for the functions that come to it later.

What `__main__` defines travels by value: the functions of one message have globals of their own, which nobody else sees. So a
pool's initializer that sets a global would set it for itself alone. `here` carries such names on, from the functions that
have assigned them to those that are called next, and what the initializer refers to; all else is as the program had it when it
sent the function.

A class is one class in a process, whichever message brings it. What the process has set on it stays; where the process has
defined the class itself, what comes back of it changes nothing.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle

from shoal.multiprocessing import by_value

__all__ = ["adopt_script", "after_fork", "before_fork", "here", "reduce_class"]

_MISSING: Any = object()
_MAIN = ("__main__", "__mp_main__")  # the latter where the script has run again
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, ModuleType, BuiltinFunctionType)

Names = dict[str, Any]


# --- globals -----------------------------------------------------------------------------------------------------------


class _OwnNames:
    """The globals of `__main__` that this process has assigned or initialised, and attributes that it has set on functions."""

    def __init__(self) -> None:
        self._values: Names = {}
        self._attributes: dict[str, Names] = {}  # by the function's name

    @contextmanager
    def initializing(self, function: Callable[..., object]) -> Iterator[None]:
        """While an initializer runs: what it assigns is kept, and so are the objects that it refers to, which it may have
        changed, or have made others of."""
        with self.running(function):
            yield
        for name, value in _referred(function):
            if isinstance(value, FunctionType) and value.__dict__:
                self._attributes[name] = value.__dict__
            if not isinstance(value, _PLAIN) and not (isinstance(value, FunctionType) and value.__closure__ is None):
                self._assign(name, value)

    @contextmanager
    def running(self, function: Callable[..., object]) -> Iterator[None]:
        """While a task runs: its globals are as this process has assigned them, and what it assigns is kept."""
        worlds = [(names, self.apply(names)) for names in _worlds(function)]
        if self._attributes and isinstance(function, FunctionType):
            function.__dict__.update(self._attributes.get(function.__qualname__, {}))
        try:
            yield
        finally:
            for names, before in worlds:
                for name, value in list(names.items()):
                    if before.get(name, _MISSING) is not value and not name.startswith("__"):
                        self._assign(name, value)

    def _assign(self, name: str, value: Any) -> None:
        self._values[name] = value
        self.apply_to_functions(vars(sys.modules["__main__"]))

    def apply(self, names: Names) -> Names:
        """Writes what is kept; returns a copy of what `names` are then."""
        names.update(self._values)
        for name, attributes in self._attributes.items():
            if isinstance(names.get(name), FunctionType):
                names[name].__dict__.update(attributes)
        return dict(names)

    def apply_to_functions(self, names: Names) -> None:
        """apply() to `names`, and to the globals of the functions among them."""
        for each in _worlds_in(names):
            self.apply(each)


here = _OwnNames()


def _worlds(function: Any) -> list[Names]:
    """The globals of what is called, where they are those of `__main__`."""
    return list({id(each.__globals__): each.__globals__ for each in _functions(function)}.values())


def _functions(called: Any) -> list[FunctionType]:
    """Those of `__main__` that a call of this runs first: itself, what it wraps, or the methods of its class."""
    while isinstance(called, functools.partial | MethodType):
        called = called.func if isinstance(called, functools.partial) else called.__func__
    functions: list[Any] = []
    while isinstance(called, FunctionType | by_value.LruCache):
        functions.append(called)
        called = getattr(called, "__wrapped__", None)
    if not functions:
        functions = list(vars(called if isinstance(called, type) else type(called)).values())
    return [each for each in functions if isinstance(each, FunctionType) and each.__module__ in _MAIN]


def _worlds_in(names: Names) -> list[Names]:
    """`names`, and the globals of the functions among them, which after runpy are another dict."""
    functions = [value for value in names.values() if isinstance(value, FunctionType) and value.__module__ in _MAIN]
    return list({id(each): each for each in (names, *(function.__globals__ for function in functions))}.values())


def _referred(function: Any) -> list[tuple[str, Any]]:
    """The globals of `__main__` that a function names, and the functions there that it calls, and so on."""
    names: Names = {}
    functions = _functions(function)
    while functions:
        each = functions.pop()
        for name in sorted(_global_names(each.__code__)):
            if name in each.__globals__ and name not in names:
                names[name] = each.__globals__[name]
                functions += _functions(names[name])
    return list(names.items())


def _global_names(code: CodeType) -> set[str]:
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*(_global_names(part) for part in inner))


# --- classes -----------------------------------------------------------------------------------------------------------


_senders: WeakKeyDictionary[type, int] = WeakKeyDictionary()  # of classes that came: the process that sent the first
_came: WeakKeyDictionary[type, Names] = WeakKeyDictionary()  # their attributes, as they came last
_new: list[type] = []  # made, but without attributes yet


def reduce_class(cls: type, reduced: Any) -> Any:
    """`reduced` is what cloudpickle makes of `cls`; returns what all processes of the family make of it."""
    if not isinstance(reduced, tuple) or len(reduced) != 6:
        return reduced
    make, arguments, state, *_, set_state = reduced = by_value.whole(cls, reduced)
    if cls.__module__ != "__main__":
        return reduced
    number = cloudpickle.cloudpickle._get_or_create_tracker_id(cls)
    return (
        _make_class,
        (number, cls.__qualname__, make, arguments),
        (os.getpid(), set_state, state),
        None,
        None,
        _set_class_state,
    )


def before_fork() -> set[type]:
    """The classes of `__main__`, numbered so that the forked process knows them again when they come by value."""
    classes = _classes_in(vars(sys.modules["__main__"]), set())
    for cls in classes:
        cloudpickle.cloudpickle._get_or_create_tracker_id(cls)
    return classes


def after_fork(parent: int, classes: set[type]) -> None:
    """In the forked process: they have come from its parent."""
    for cls in classes:
        _senders[cls] = parent
        _came[cls] = dict(vars(cls))


def _classes_in(names: Mapping[str, Any], found: set[type]) -> set[type]:
    for value in list(names.values()):
        if isinstance(value, type) and value.__module__ == "__main__" and value not in found:
            found.add(value)
            _classes_in(vars(value), found)
    return found


def adopt_script(names: Names) -> None:
    """After the script has run again here, with its `names`: they are what this process has set, and the classes that came."""
    for each in _worlds_in(names):
        each.update({cls.__qualname__: cls for cls in list(_senders) if isinstance(each.get(cls.__qualname__), type)})
    here.apply_to_functions(names)


def _make_class(number: str, qualname: str, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """The class, still empty, unless it is here: to make one tells its bases and its metaclass of it."""
    cls: type | None = cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if cls is None and (cls := _class_of_script(qualname)) is not None:
        cloudpickle.cloudpickle._lookup_class_or_track(number, cls)
    if cls is None:
        cls = make(*arguments)
        _new.append(cls)
    return cls


def _class_of_script(qualname: str) -> type | None:
    """Where the script has run again in this process."""
    found: Any = sys.modules.get("__mp_main__")
    for name in qualname.split("."):
        found = vars(found).get(name) if isinstance(found, type | ModuleType) else None
    return found if isinstance(found, type) and found.__module__ == "__mp_main__" else None


def _set_class_state(cls: type, sent: Any) -> None:
    sender, set_state, state = sent
    if any(cls is new for new in _new):
        _new[:] = [new for new in _new if new is not cls]
        _senders[cls] = sender
    elif _senders.get(cls) != sender:  # defined here, or sent back
        return
    else:
        before = _came[cls]
        own = {name for name, value in before.items() if vars(cls).get(name, _MISSING) is not value}
        state = ({name: value for name, value in state[0].items() if name not in own}, {})
    set_state(cls, state)
    _came[cls] = {**_came.get(cls, {}), **{name: vars(cls).get(name, _MISSING) for name in state[0]}}
