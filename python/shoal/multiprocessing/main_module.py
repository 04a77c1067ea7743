"""`__main__` in a started process: one module for all that the program sends of it, and its script, run on demand.

What `__main__` defines travels by value. In a process of ours its functions find their globals in the process's own `__main__`,
whichever message brought them, as they do where a start method runs the script again: what an initializer or a task sets, the
next task sees. A global, or an attribute of a class or function, that the process has changed itself is the process's; the
others are as the program had them when it sent what came last.

That holds for what comes from the process's parent and the parents before it. What comes from elsewhere, a result for
example, has globals of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.abc import InspectLoader
from importlib.machinery import SourceFileLoader
from multiprocessing import process
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle

from shoal.process._importing import importing

__all__ = [
    "after_fork",
    "arrivals",
    "before_fork",
    "begin",
    "generation",
    "meet",
    "reduce_class",
    "reduce_function",
    "script",
]

_GENERATION = "__shoal_generation__"
_MISSING: Any = object()
_generation = 0  # 0: a process that was not started by us
_script: dict[str, str] = {}  # the main script of the first process of the family, as script() tells of it


def _names() -> dict[str, Any]:
    return vars(sys.modules["__main__"])


# --- what was sent, and what it has become -----------------------------------------------------------------------------


_UNKNOWN = object()  # the look of what cannot be looked at: a lock, a socket, what was there before anything came
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


class _Digester(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle comes without types
    """Code and classes are looked at, but not into: what functions refer to is named beside them."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            return repr, ((obj.__module__, obj.__qualname__, marshal.dumps(obj.__code__, 2)),)
        if isinstance(obj, type):
            return repr, ((obj.__module__, obj.__qualname__, id(obj)),)
        return NotImplemented


class _Hash(io.RawIOBase):
    """A file that keeps the digest of what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return memoryview(data).nbytes

    def write_aside(self, buffer: pickle.PickleBuffer) -> None:
        self._hash.update(buffer.raw())

    def digest(self) -> bytes:
        return self._hash.digest()


def _look(value: Any) -> Any:
    """What is equal for two values as long as neither was changed: of what is small the value, else a digest."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is FunctionType:
        if value.__closure__ is not None:
            return id(value), object()  # never the same again: its cells have no names
        return value.__code__, _look(value.__defaults__), _look(value.__kwdefaults__)
    if isinstance(value, type | ModuleType | BuiltinFunctionType):
        return kind, id(value)
    file = _Hash()
    try:
        _Digester(file, 5, file.write_aside).dump(value)
    except Exception:
        return _UNKNOWN
    return file.digest()


class _Received:
    """What came of the names of one namespace: of `__main__`, or of a class or function of its."""

    def __init__(self, came: Mapping[str, tuple[Any, Any]] | None = None) -> None:
        self._came = dict(came or {})

    @staticmethod
    def unknown(values: Mapping[str, Any]) -> _Received:
        """What was there before a fork."""
        return _Received({name: (value, _UNKNOWN) for name, value in values.items()})

    def merge(
        self,
        incoming: Mapping[str, tuple[Any, Any]],
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
    ) -> None:
        """Writes what is new, and what the program has changed and this process has not.

        Args:
            incoming: of each name its value, and the look that it came with.
            read: returns _MISSING for what is not there.
        """
        for name, (value, look) in incoming.items():
            here = read(name)
            if here is value:
                self._came.setdefault(name, (value, look))
            elif here is _MISSING or self._follows_the_program(name, here, look):
                write(name, value)
                self._came[name] = (value, look)

    def _follows_the_program(self, name: str, here: Any, look: Any) -> bool:
        value, before = self._came.get(name, (_MISSING, _UNKNOWN))
        if here is not value or look is _UNKNOWN or look == before:
            return False
        if before is _UNKNOWN:  # what may have been changed in place stays
            return type(here) in _PLAIN or isinstance(here, FunctionType | type)
        return isinstance(here, FunctionType) or bool(_look(here) == before)


_globals = _Received()
_attributes: WeakKeyDictionary[Any, _Received] = WeakKeyDictionary()  # of classes and functions that came


def _with_looks(values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (value, _look(value)) for name, value in values.items()}


def _merge_globals(incoming: Mapping[str, tuple[Any, Any]]) -> None:
    names = _names()
    _globals.merge(incoming, lambda name: names.get(name, _MISSING), names.__setitem__)


Arrivals = list[dict[str, tuple[Any, Any]]]
_arrivals: list[Arrivals] = []


@contextmanager
def arrivals() -> Iterator[Arrivals]:
    """The globals that come with what is unpickled meanwhile, for meet()."""
    came: Arrivals = []
    _arrivals.append(came)
    try:
        yield came
    finally:
        _arrivals.remove(came)


def meet(came: Arrivals) -> None:
    """For what is not unpickled again, since it is kept: its globals come as if it were."""
    for incoming in came:
        _merge_globals(incoming)


# --- pickles -----------------------------------------------------------------------------------------------------------


def reduce_function(function: FunctionType, reduced: Any) -> Any:
    """`reduced` is what cloudpickle makes of `function`; returns what a process of ours makes it of."""
    names = _names()
    if reduced is NotImplemented or function.__globals__ is not names:
        return reduced
    make, (code, base, _, _, closure), state, *_, set_state = reduced
    base[_GENERATION] = _generation
    is_global = closure is None and names.get(function.__qualname__) is function
    name = function.__qualname__ if is_global else None
    return _make_function, (make, code, base, closure, name), (set_state, state), None, None, _set_function_state


def reduce_class(cls: type, reduced: Any) -> Any:
    """As reduce_function(), of a class."""
    if reduced is NotImplemented or cls.__module__ != "__main__" or len(reduced) != 6:
        return reduced
    make, arguments, state, *_, set_state = reduced
    return make, arguments, (_generation, set_state, state), None, None, _set_class_state


def _make_function(make: Any, code: CodeType, base: dict[str, Any], closure: Any, name: str | None) -> FunctionType:
    """The function, still empty; one that is here already and has the same code is the same function."""
    if base.get(_GENERATION, _generation) >= _generation:
        return make(code, base, None, None, closure)  # type: ignore[no-any-return]  # of cloudpickle
    names = _names()
    here = names.get(name) if name is not None else None
    if type(here) is FunctionType and here.__code__ == code and here.__globals__ is names:
        return here
    for key in ("__package__", "__path__", "__file__"):
        if key in base and names.get(key) is None:
            names[key] = base[key]
    function: FunctionType = make(code, names, None, None, closure)
    _made[function] = name
    return function


_made: dict[FunctionType, str | None] = {}  # until their state has come, with the names that they are globals by


def _set_function_state(function: FunctionType, packed: Any) -> None:
    set_state, state = packed
    if function.__globals__ is not _names():
        set_state(function, state)
        return
    attributes, slots = state
    incoming = _with_looks(slots["__globals__"])
    changing = {**attributes, "__defaults__": slots["__defaults__"], "__kwdefaults__": slots["__kwdefaults__"]}
    if function in _made:
        set_state(function, (attributes, {**slots, "__globals__": {}}))
        name = _made.pop(function)
        if name is not None:
            _attributes[function] = _Received(_with_looks(changing))
            incoming[name] = (function, _look(function))
    else:
        _merge_attributes(function, changing)
    for came in _arrivals:
        came.append(incoming)
    _merge_globals(incoming)


def _set_class_state(cls: type, packed: Any) -> None:
    generation, set_state, state = packed
    if generation < _generation and cls in _attributes:
        _merge_attributes(cls, {name: value for name, value in state[0].items() if name != "_abc_impl"})
        return
    set_state(cls, state)
    if generation < _generation:
        _attributes[cls] = _Received(_with_looks(state[0]))


def _merge_attributes(of: Any, incoming: Mapping[str, Any]) -> None:
    def read(name: str) -> Any:
        return getattr(of, name, _MISSING) if isinstance(of, FunctionType) else vars(of).get(name, _MISSING)

    if of not in _attributes:  # it came of the script
        _attributes[of] = _Received.unknown(vars(of))
    _attributes[of].merge(_with_looks(incoming), read, lambda name, value: setattr(of, name, value))


# --- the main script ---------------------------------------------------------------------------------------------------


def script() -> dict[str, str]:
    """Where this family's `__main__` comes from; empty where it cannot be run again (a notebook, `python -c`)."""
    main = sys.modules.get("__main__")
    if _generation or main is None:
        return _script
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"name": name}
    path = getattr(main, "__file__", None)
    if path is None:
        return {}
    return {"path": os.path.normpath(os.path.join(process.ORIGINAL_DIR or "", path))}  # type: ignore[attr-defined]  # CPython has it, typeshed does not


def generation() -> int:
    """How many processes lie between this one and the first of its family, itself counted; 0 for the first."""
    return _generation


def begin(parents: int, script: dict[str, str]) -> None:
    """In a fresh process whose parent is of the generation `parents`: its `__main__` takes what comes, and runs `script`
    when, and only when, somebody asks it for a name that did not travel."""
    global _generation, _script
    _generation, _script = parents + 1, script
    module = sys.modules["__main__"]
    module.__getattr__ = _name_of_main  # type: ignore[method-assign]  # a function of a module (PEP 562)


def before_fork() -> None:
    """So that the forked process knows the classes of `__main__` again when they come by value."""
    pickler = cloudpickle.Pickler(io.BytesIO())
    for cls in _classes():
        with suppress(Exception):
            pickler.reducer_override(cls)  # numbers it


def after_fork() -> None:
    """In a forked process: what is in `__main__` is the program's."""
    global _generation, _globals
    if not _generation:
        _script.update(script())
    _generation += 1
    _globals = _Received.unknown(_names())
    _attributes.clear()
    for of in (*_classes(), *(value for value in _names().values() if isinstance(value, FunctionType))):
        _attributes[of] = _Received.unknown(vars(of))


def _classes() -> list[type]:
    return [value for value in _names().values() if isinstance(value, type) and value.__module__ == "__main__"]


_ran: list[str] = []  # the name that the script was run for


def _name_of_main(name: str) -> Any:
    if name.startswith("__") or sys._getframe(1).f_globals.get("__name__") == "inspect":
        raise _missing(name)
    found = _class_that_travelled(name)
    if found is None and _script and not _ran:
        _ran.append(name)
        with importing(f"{process.current_process().name} ran the main script for {name!r}, which is defined there"):
            _run()
        found = _names().get(name)
    if found is None:
        raise _missing(name)
    return found


def _missing(name: str) -> AttributeError:
    return AttributeError(f"module '__main__' has no attribute {name!r}")


def _run() -> None:
    """As CPython's start methods do for every process: under the name `__mp_main__`. What has come already stays."""
    module = sys.modules["__main__"]
    code, spec = _code()
    if code is None:
        return
    came = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    vars(module).update(
        __name__="__mp_main__",
        __file__=code.co_filename,
        __spec__=spec,
        __package__=spec.parent if spec is not None else None,
    )
    exec(code, vars(module))
    vars(module).update(came)


def _code() -> tuple[CodeType | None, Any]:
    """The main script's, and its spec where it was run as a module."""
    if "path" in _script:
        if os.path.splitext(os.path.basename(_script["path"]))[0] == "ipython":
            return None, None
        loader = SourceFileLoader("__mp_main__", _script["path"])
        return loader.source_to_code(loader.get_data(_script["path"]), _script["path"]), None
    name = _script["name"]
    if name == "__main__" or name.endswith(".__main__"):  # programs of their own, which CPython does not run either
        return None, None
    spec = importlib.util.find_spec(name)
    if spec is None or not isinstance(spec.loader, InspectLoader):
        raise ImportError(f"the main script's module {name!r} is not found again")
    return spec.loader.get_code(name), spec


def _class_that_travelled(name: str) -> Any:
    """A class of `__main__` that was unpickled here by value."""
    for cls in list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())):
        if cls.__module__ == "__main__" and cls.__qualname__ == name:
            return cls
    return None
