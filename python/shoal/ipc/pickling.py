"""Pickles what a worker needs, and says exactly what is in the way when that fails, before any process is started."""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

from shoal.ipc import cloudpickling
from shoal.ipc.sharing import Parcel

__all__ = ["PicklingError", "dumps", "explain", "find_unpicklable", "in_the_way", "is_of_pickling"]

_MAX_DEPTH = 12
_MAX_OBJECTS = 20_000


class PicklingError(TypeError, pickle.PicklingError):
    """An object that workers need cannot be pickled. The message names the part that is in the way.

    Attributes:
        path: where that part is, for example "factory.<closure>.config.socket".
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def dumps(obj: Any, name: str = "factory", *, gpu: bool = True, parcel: Parcel | None = None) -> bytes:
    """`obj` as bytes that a worker's `pickle.loads` takes. Lambdas, closures, local classes, and what `__main__` or a
    notebook defines travel by value.

    Args:
        name: what the caller calls the object; the path in an error begins with it.
        gpu: False for workers that see no GPU: torch tensors on one are refused, since they could not be read there.
        parcel: locks, queues, pipes, shared arrays and tensors (of multiprocessing, torch and Shoal) go along, as what
            they are, for as long as it is held; without one, such objects are refused, and shared data is copied.

    Raises:
        PicklingError: naming the innermost part that cannot be pickled, and what to do about it.
    """
    count = len(parcel.blocks) if parcel else 0
    dump = functools.partial(_dump, gpu=gpu, parcel=parcel)
    with parcel.packing() if parcel else contextlib.nullcontext():
        try:
            data = dump(obj)
        except Exception as error:
            steps = _way_to_unpicklable(obj, name, error, dump)
            path, _, cause = steps[-1]
            raise PicklingError(_explain(steps), path) from cause
        return parcel.seal(data, count) if parcel else data


def is_of_pickling(error: Exception) -> bool:
    """Whether explain() can say more of it: pickle's own errors, and TorchScript's. Others are what objects say themselves."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("Tried to serialize object __torch__")
    return isinstance(error, TypeError | AttributeError | pickle.PicklingError)


def explain(obj: Any, error: Exception, dump: Callable[[Any], bytes], name: str = "object") -> PicklingError:
    """What to raise where `dump(obj)` raised `error`, for an object that is sent to another process: it names the
    innermost part that cannot be pickled."""
    path, part, cause = _way_to_unpicklable(obj, name, error, dump)[-1]
    text = f"{path}: {_reason(part, cause)}"
    if not _says_why(part, cause):
        text += f". Another process cannot get it. {_advice(part, cause)}"
    return PicklingError(text, path)


def in_the_way(obj: Any, error: Exception, dump: Callable[[Any], bytes], name: str) -> str:
    """The first words of explain()'s message: which part it is, and that it cannot be pickled."""
    path, part, cause = _way_to_unpicklable(obj, name, error, dump)[-1]
    return f"{path}: {_reason(part, cause)}"


class _Pickler(cloudpickling.Pickler):
    """Refuses what would arrive useless."""

    def __init__(self, file: io.BytesIO, gpu: bool, parcel: Parcel | None) -> None:
        super().__init__(file)
        self._gpu = gpu
        self._parcel = parcel

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if self._parcel and (reduced := self._parcel.reduce(obj)) is not NotImplemented:
            return reduced
        if kind.__module__ == "multiprocessing.connection":
            raise TypeError(
                f"cannot pickle {kind.__name__!r} object: its descriptor is another one, or none, elsewhere"
            )
        if not self._gpu and kind.__module__.partition(".")[0] == "torch" and _is_on_gpu(obj):
            raise TypeError(f"cannot pickle a {kind.__name__} on {obj.device} for a worker that sees no GPU")
        return super().reducer_override(obj)


def _is_on_gpu(obj: Any) -> bool:
    """A TypedStorage warns whoever asks; the storage that it has does not."""
    return type(obj).__name__ != "TypedStorage" and getattr(obj, "is_cuda", False) is True


def _dump(obj: Any, gpu: bool, parcel: Parcel | None = None) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, gpu, parcel).dump(obj)
        return file.getvalue()


def find_unpicklable(obj: Any, name: str, error: Exception) -> tuple[str, Any, Exception]:
    """The path of the innermost part of `obj` that cannot be pickled, the part, and what pickling it raises."""
    return _way_to_unpicklable(obj, name, error, functools.partial(_dump, gpu=True))[-1]


_Dump = Callable[[Any], bytes]
_Step = tuple[str, Any, Exception]


def _way_to_unpicklable(obj: Any, name: str, error: Exception, dump: _Dump) -> list[_Step]:
    """The failing parts, from `obj` to the innermost, with the path of each."""
    seen = {id(obj)}
    steps: list[_Step] = [(name, obj, error)]
    while len(steps) <= _MAX_DEPTH:
        path, part, cause = steps[-1]
        found = None if _says_why(part, cause) else _failing_part(part, seen, dump)
        if found is None:
            break
        step, part, cause = found
        steps.append((path + step, part, cause))
    return steps


def _says_why(obj: Any, error: Exception) -> bool:
    """Whether its class refuses to pickle it, in words of its own."""
    if str(error) == f"cannot pickle {type(obj).__name__!r} object":  # CPython's
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_locals.get("self") is not obj:
        return False
    code = trace.tb_frame.f_code
    reducers = (getattr(type(obj), name, None) for name in ("__reduce_ex__", "__reduce__", "__getstate__"))
    return any(getattr(reducer, "__code__", None) is code for reducer in reducers)


def _failing_part(obj: Any, seen: set[int], dump: _Dump) -> _Step | None:
    for step, part in _parts(obj):
        if id(part) in seen or len(seen) > _MAX_OBJECTS:
            continue
        seen.add(id(part))
        try:
            dump(part)
        except Exception as error:
            return step, part, error
    return None


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """What pickling `obj` also pickles, with the step from `obj` to it."""
    if isinstance(obj, types.FunctionType):
        yield from _parts_of_function(obj)
    elif isinstance(obj, types.MethodType):
        yield ".__self__", obj.__self__
        yield ".__func__", obj.__func__
    elif isinstance(obj, dict):
        for key, value in obj.items():
            yield f"[{key!r}]", value
            yield f".<key {key!r}>", key
    elif isinstance(obj, list | tuple):
        for i, value in enumerate(obj):
            yield f"[{i}]", value
    elif isinstance(obj, set | frozenset):
        for value in obj:
            yield ".<element>", value
    elif isinstance(obj, type):
        for key, value in vars(obj).items():
            yield f".{key}", value
        for base in obj.__bases__:
            yield f".<base {base.__name__}>", base
    elif not _speaks_for_itself(obj):
        yield from _parts_of_instance(obj)


def _speaks_for_itself(obj: Any) -> bool:
    """Whether its own error says more than one about a part of it."""
    return (
        type(obj).__module__.partition(".")[0] == "multiprocessing"
        or _is_started(obj)
        or _is_of(obj, "torch.jit")
        or _is_of(obj, "torch.export")
        or hasattr(obj, "single_action_space")
    )


def _is_started(obj: Any) -> bool:
    """Whether it is a Process object that has a process."""
    return _is_of(obj, "multiprocessing.process") and getattr(obj, "_popen", None) is not None


def _is_of(obj: Any, package: str) -> bool:
    """Whether its class, or one that it derives from, is of this package."""
    return any(f"{base.__module__}.".startswith(f"{package}.") for base in type(obj).__mro__)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield f".<closure>.{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for i, value in enumerate(function.__defaults__ or ()):
        yield f".<default {i}>", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f".<default {name}>", value
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield f".<global>.{name}", function.__globals__[name]
    yield from ((f".{name}", value) for name, value in vars(function).items())


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):  # a nested function
            yield from _global_names(constant)


def _parts_of_instance(obj: Any) -> Iterator[tuple[str, Any]]:
    for attribute in ("func", "args", "keywords"):  # functools.partial
        if type(obj).__name__ == "partial" and hasattr(obj, attribute):
            yield f".{attribute}", getattr(obj, attribute)
    for name, value in getattr(obj, "__dict__", {}).items():
        yield f".{name}", value
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                yield f".{name}", getattr(obj, name)
    if type(obj).__module__ == "__main__" or "<locals>" in type(obj).__qualname__:
        yield ".<class>", type(obj)  # travels by value


def _explain(steps: list[_Step]) -> str:
    path, part, cause = steps[-1]
    text = f"{path}: {_reason(part, cause)}"
    for at, (env_path, env, _) in enumerate(steps):
        if not _looks_like_env(env) or _speaks_for_itself(env):
            continue
        name = type(env).__name__
        if at == 0:
            return (
                f"{text}. This is an environment; workers need something that makes one, so that each makes its own: pass "
                f"`lambda: {name}(…)` or the class itself instead of the instance."
            )
        return (
            f"{text}. {env_path} is an environment, a {name} that exists already; each worker makes its own: write "
            f"{name}(…) inside the function."
        )
    if _says_why(part, cause):
        return text
    return f"{text}. Workers are other processes and get a copy of it. {_advice(part, cause)}"


def _advice(part: Any, cause: Exception) -> str:
    kind = type(part)
    if isinstance(part, types.GeneratorType):
        return "Call the function that makes the generator inside the function that is sent."
    if _is_started(part):
        return (
            "A process that has started cannot be sent: keep it out of the object that is sent, in a local list, or give "
            "the object's class a __getstate__ without it. A bound method, such as target=self.work, sends all of self."
        )
    if kind.__module__.partition(".")[0] in ("multiprocessing", "_multiprocessing"):
        return (
            "What environments count together is shoal.worker().counter(name), and small values that they share are "
            "shoal.worker().shared: they need no locks."
        )
    if hasattr(part, "single_action_space"):
        return f"Make the {kind.__name__} inside the function."
    if _is_of(part, "torch.jit"):
        return (
            "Write it to a file with torch.jit.save(): a worker reads it with torch.jit.load(path), and a shoal.ModelService "
            "takes the path."
        )
    if _is_of(part, "torch.export"):
        return (
            "Write its program to a file with torch.export.save(): a worker reads it with torch.export.load(path).module(), "
            "and a shoal.ModelService takes a function without arguments that does so."
        )
    if "non-leaf tensor" in str(cause):
        return "Give tensor.detach(), which has the values alone."
    if kind.__module__.partition(".")[0] == "torch" and _is_on_gpu(part):
        return 'Move it to the CPU first, or give the workers a GPU with worker=shoal.WorkerOptions(gpu="own").'
    return (
        f"Make the {kind.__name__} inside the function (or on first use, in the worker), or give its class a __reduce__ that "
        "says how to make it anew."
    )


def _reason(part: Any, cause: Exception) -> str:
    text = str(cause)
    if _says_why(part, cause) or "cannot pickle" in text or "Can't pickle" in text or "can't pickle" in text:
        return text
    return f"cannot pickle {type(part).__name__!r} object ({type(cause).__name__}: {text})"


def _looks_like_env(obj: Any) -> bool:
    return not isinstance(obj, type) and all(hasattr(obj, name) for name in ("reset", "step", "observation_space"))
