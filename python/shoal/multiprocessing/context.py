"""Start methods as objects. There is no global one that a library could fix for everybody: a context is asked for, used,
and passed on.

The contexts are CPython's (`multiprocessing.context.BaseContext`), so that what takes a context takes these:
`concurrent.futures.ProcessPoolExecutor(mp_context=…)`, `torch.utils.data.DataLoader(multiprocessing_context=…)`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import context as _cpython
from typing import Any

from shoal.multiprocessing.process import ForkProcess, ForkServerProcess, Process, ProcessOfMethod, SpawnProcess

__all__ = ["BaseContext", "DefaultContext", "ForkContext", "ForkServerContext", "Options", "SpawnContext"]

METHODS = ("forkserver", "spawn", "fork")  # the default first


@dataclasses.dataclass(frozen=True)
class Options:
    """What the processes of a context get on top of what they inherit. Hashable.

    Attributes:
        threads: of OpenMP, MKL, OpenBLAS and NumExpr in each process; None: as inherited.
        gpu: False hides all GPUs from them, and a preload that opens one is an error.
        env: variables on top of this process's own.
        preload: modules that the zygote of "forkserver", or a spawned process, imports first.
        allow_unsafe_fork: "fork" does so although it is known to break here.
    """

    threads: int | None = None
    gpu: bool = True
    env: tuple[tuple[str, str], ...] = ()
    preload: tuple[str, ...] = ()
    allow_unsafe_fork: bool = False


class BaseContext(_cpython.BaseContext):
    """What all contexts offer. Every factory (`Queue()`, `Lock()`, …) makes an object for processes of this context."""

    _name = "forkserver"

    def get_context(self, method: str | None = None, **options: Any) -> Any:
        """The context of `method`: "auto" (the same as "forkserver"), "forkserver", "spawn", "fork"; None: this one.

        Args:
            options: fields of `Options`; `env` may be a mapping, `preload` any sequence.

        Raises:
            ValueError: there is no such method.
            TypeError: there is no such option.
        """
        if method is None and not options:
            return self
        return _concrete(self._name if method is None else method, _options(**options))

    def get_start_method(self, allow_none: bool = False) -> Any:
        return self._name

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        raise ValueError("cannot set the start method of a concrete context; ask for another one by get_context()")

    def get_all_start_methods(self) -> list[str]:
        """The start methods there are, the default first."""
        return list(METHODS)

    def Lock(self, **options: Any) -> Any:
        """shoal.multiprocessing.synchronize.Lock, with its options; so the others."""
        return self._synchronizer("Lock", options)

    def RLock(self, **options: Any) -> Any:
        return self._synchronizer("RLock", options)

    def Semaphore(self, value: int = 1, **options: Any) -> Any:
        return self._synchronizer("Semaphore", options, value)

    def BoundedSemaphore(self, value: int = 1, **options: Any) -> Any:
        return self._synchronizer("BoundedSemaphore", options, value)

    def Condition(self, lock: Any = None) -> Any:
        return self._synchronizer("Condition", {}, lock)

    def Event(self) -> Any:
        return self._synchronizer("Event", {})

    def Barrier(self, parties: int, action: Any = None, timeout: float | None = None) -> Any:
        return self._synchronizer("Barrier", {}, parties, action, timeout)

    def _synchronizer(self, name: str, options: Mapping[str, Any], *arguments: Any) -> Any:
        from shoal.multiprocessing import synchronize

        return getattr(synchronize, name)(*arguments, ctx=self.get_context(), **options)

    def RawValue(self, typecode_or_type: Any, *args: Any) -> Any:
        """shoal.multiprocessing.sharedctypes.RawValue; so the others."""
        from shoal.multiprocessing.sharedctypes import RawValue

        return RawValue(typecode_or_type, *args)

    def RawArray(self, typecode_or_type: Any, size_or_initializer: Any) -> Any:
        from shoal.multiprocessing.sharedctypes import RawArray

        return RawArray(typecode_or_type, size_or_initializer)

    def Value(self, typecode_or_type: Any, *args: Any, lock: Any = True) -> Any:
        from shoal.multiprocessing.sharedctypes import Value

        return Value(typecode_or_type, *args, lock=lock, ctx=self.get_context())

    def Array(self, typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
        from shoal.multiprocessing.sharedctypes import Array

        return Array(typecode_or_type, size_or_initializer, lock=lock, ctx=self.get_context())

    def Queue(self, maxsize: int = 0) -> Any:
        """shoal.multiprocessing.queues.Queue"""
        from shoal.multiprocessing.queues import Queue

        return Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize: int = 0) -> Any:
        """shoal.multiprocessing.queues.JoinableQueue"""
        from shoal.multiprocessing.queues import JoinableQueue

        return JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self) -> Any:
        """shoal.multiprocessing.queues.SimpleQueue"""
        from shoal.multiprocessing.queues import SimpleQueue

        return SimpleQueue(ctx=self.get_context())

    def Pipe(self, duplex: bool = True) -> Any:
        """shoal.multiprocessing.connection.Pipe"""
        from shoal.multiprocessing.connection import Pipe

        return Pipe(duplex)

    def Pool(
        self,
        processes: int | None = None,
        initializer: Any = None,
        initargs: Any = (),
        maxtasksperchild: int | None = None,
        **options: Any,
    ) -> Any:
        """shoal.multiprocessing.pool.Pool, with its options."""
        from shoal.multiprocessing.pool import Pool

        return Pool(processes, initializer, initargs, maxtasksperchild, context=self.get_context(), **options)

    def start_processes(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str | None = None,
    ) -> Any:
        """shoal.multiprocessing.start_processes with processes of this context, or with its options and another start
        method."""
        from shoal.multiprocessing.spawning import start_in

        own = self.get_context()
        context = own if start_method is None else _concrete(start_method, own.options)
        return start_in(context, fn, args, nprocs, join, daemon)

    def spawn(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        """shoal.multiprocessing.spawn with this context's options."""
        from shoal.multiprocessing.spawning import warn_unless_spawn

        warn_unless_spawn(start_method)
        return self.start_processes(fn, args, nprocs, join, daemon, "spawn")

    def __getattr__(self, name: str) -> Any:
        """What else the module has, which is the same in every context: SharedTensor, share_module, LogRelay …"""
        module = sys.modules["shoal.multiprocessing"]
        if name.startswith("_") or name not in module.__all__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(module, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *sys.modules["shoal.multiprocessing"].__all__})

    def set_forkserver_preload(self, modules_names: Sequence[str]) -> None:
        """Modules that zygotes import once, so that no process does. A failure to import one is reported by start().

        It replaces an earlier list; a process started from now on is forked from a zygote with these modules.
        """
        if isinstance(modules_names, str) or not all(isinstance(name, str) for name in modules_names):
            raise TypeError("module_names must be a list of strings")
        from shoal.multiprocessing import popen

        popen.set_preload(modules_names)


class _Concrete(BaseContext):
    """One start method, with options."""

    _process: type[ProcessOfMethod]

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.Process = self._process if options is None else _process_class(self._process, options)

    def __repr__(self) -> str:
        default = Options()
        set_ = {name: value for name, value in vars(self.options).items() if value != getattr(default, name)}
        return f"shoal.multiprocessing.get_context({', '.join([repr(self._name), *map('{0[0]}={0[1]!r}'.format, set_.items())])})"

    def __reduce__(self) -> Any:
        return _concrete, (self._name, self.options)


class ForkServerContext(_Concrete):
    """Processes are forked from a zygote: a fresh, exec'd, single-threaded process of which they are clean copies."""

    _name = "forkserver"
    _process = ForkServerProcess


class SpawnContext(_Concrete):
    """Each process is a fresh interpreter."""

    _name = "spawn"
    _process = SpawnProcess


class ForkContext(_Concrete):
    """Processes are forks of this one. Refused where that is known to break (shoal.process.fork_hazards)."""

    _name = "fork"
    _process = ForkProcess


class DefaultContext(BaseContext):
    """What the functions of the module use: the context of set_start_method(), or else "forkserver"."""

    Process = Process

    def __init__(self) -> None:
        self._chosen: Any = None
        self._chosen_at = ""

    def get_context(self, method: str | None = None, **options: Any) -> Any:
        if method is None and not options:
            return self._chosen or _concrete("auto", Options())
        return super().get_context(method or self.get_start_method(), **options)

    def get_start_method(self, allow_none: bool = False) -> Any:
        """The default method; None where `allow_none` and nobody has set one. To read it does not fix it."""
        if self._chosen is None and allow_none:
            return None
        return self.get_context()._name

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Fixes what the module's own functions use, for programs written for `multiprocessing`.

        Args:
            force: also where it has been set; `method=None` takes the choice back.

        Raises:
            RuntimeError: it has been set; the message says where.
        """
        if self._chosen is not None and not force:
            raise RuntimeError(
                f"context has already been set: start method {self._chosen._name!r}, {self._chosen_at}. A part of a "
                f"program uses shoal.multiprocessing.get_context({method!r}), which concerns nobody else; "
                "force=True overrules the first call"
            )
        self._chosen = None if method is None else self.get_context(method)
        frame = sys._getframe(1)
        self._chosen_at = f"set at {frame.f_code.co_filename}, line {frame.f_lineno}"

    def inherit(self, method: str | None) -> None:
        """In a started process: what its parent uses."""
        self._chosen = None if method is None else self.get_context(method)
        self._chosen_at = "by the process that started this one"


_classes: dict[str, type[_Concrete]] = {
    "auto": ForkServerContext,
    "forkserver": ForkServerContext,
    "spawn": SpawnContext,
    "fork": ForkContext,
}
_lock = threading.Lock()
_contexts: dict[tuple[type[_Concrete], Options], _Concrete] = {}


def _concrete(method: str, options: Options) -> _Concrete:
    """One for each method and set of options."""
    if method not in _classes:
        raise ValueError(f"cannot find context for {method!r}; there are {', '.join(map(repr, ('auto', *METHODS)))}")
    key = (_classes[method], options)
    with _lock:
        if key not in _contexts:
            _contexts[key] = key[0](None if options == Options() else options)
        return _contexts[key]


def _options(env: Mapping[str, str] | Sequence[Any] = (), preload: Sequence[str] = (), **others: Any) -> Options:
    pairs = env.items() if isinstance(env, Mapping) else env
    variables = tuple(sorted((str(name), str(value)) for name, value in pairs))
    return Options(env=variables, preload=tuple(preload), **others)


@functools.cache
def _process_class(base: type[ProcessOfMethod], options: Options) -> type[Process]:
    """A Process that starts with these options."""

    def start(process: Process) -> Any:
        return base._launch(process, options)

    return type(base.__name__, (base,), {"_Popen": staticmethod(start), "__module__": base.__module__})


def _renew_lock() -> None:
    """In a forked child: another thread may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

default_context = DefaultContext()
