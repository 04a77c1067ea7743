"""What a start method's context makes: processes, queues, locks, pools.

The contexts are CPython's (`multiprocessing.context.BaseContext`), so that what takes a context takes these:
`concurrent.futures.ProcessPoolExecutor(mp_context=…)`, `torch.utils.data.DataLoader(multiprocessing_context=…)`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal.multiprocessing import names
from shoal.multiprocessing.process import ForkProcess, ForkServerProcess, Process, ProcessOfMethod, SpawnProcess
from shoal.multiprocessing.start_methods import Options, StartMethod, add_context, context_of
from shoal.process import default_method
from shoal.reprs import never_raises

__all__ = ["BaseContext", "DefaultContext", "ForkContext", "ForkServerContext", "SpawnContext", "default_context"]


class BaseContext(StartMethod):
    """What all contexts offer. Every factory (`Queue()`, `Lock()`, …) makes an object for processes of this context."""

    def Lock(self, *, on_owner_died: str = "recover") -> Any:
        """A lock that any process may release.

        Args:
            on_owner_died: what acquiring does after a process has died with the lock. "recover": who waits gets it, with a
                RuntimeWarning, and the attribute `recovered` is True for as long as that one holds it. "raise":
                `shoal.OwnerDied`, and the lock is free. "ignore": it stays the dead one's until somebody releases it.
        """
        return self._synchronizer("Lock", {"on_owner_died": on_owner_died})

    def RLock(self, *, on_owner_died: str = "recover") -> Any:
        """A lock that its thread may acquire again, and only it may release.

        Args:
            on_owner_died: as Lock's.
        """
        return self._synchronizer("RLock", {"on_owner_died": on_owner_died})

    def Semaphore(self, value: int = 1, *, on_owner_died: str = "recover") -> Any:
        """Permits, `value` at first.

        Args:
            on_owner_died: as Lock's.
        """
        return self._synchronizer("Semaphore", {"on_owner_died": on_owner_died}, value)

    def BoundedSemaphore(self, value: int = 1, *, on_owner_died: str = "recover") -> Any:
        """Permits, never more than there were at first.

        Args:
            on_owner_died: as Lock's.
        """
        return self._synchronizer("BoundedSemaphore", {"on_owner_died": on_owner_died}, value)

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
        context = own if start_method is None else context_of(start_method, own.options)
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
        if name not in names.MODULE_OF:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return names.find(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names.MODULE_OF})

    def set_forkserver_preload(self, module_names: Sequence[str]) -> None:
        """Modules that zygotes import once, so that no process does. A failure to import one is reported by start().

        It replaces an earlier list; a process started from now on is forked from a zygote with these modules.
        """
        if isinstance(module_names, str) or not all(isinstance(name, str) for name in module_names):
            raise TypeError("module_names must be a list of strings")
        from shoal.multiprocessing import popen

        popen.set_preload(module_names)


class _Concrete(BaseContext):
    """One start method, with options."""

    _process: type[ProcessOfMethod]

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.Process = self._process
        if options is not None:
            self.Process = _process_class(self._process, options)  # type: ignore[arg-type]  # a class has a hash

    @never_raises
    def __repr__(self) -> str:
        default = Options()
        set_ = {name: value for name, value in vars(self.options).items() if value != getattr(default, name)}
        if "env" in set_:
            set_["env"] = dict(set_["env"])
        return f"shoal.multiprocessing.get_context({', '.join([repr(self._name), *map('{0[0]}={0[1]!r}'.format, set_.items())])})"

    def __reduce__(self) -> Any:
        return context_of, (self._name, self.options)


class ForkServerContext(_Concrete):
    """Processes are forked from a zygote: a fresh, exec'd, single-threaded process of which they are clean copies."""

    _name = "forkserver"
    _process = ForkServerProcess


class SpawnContext(_Concrete):
    """Each process is a fresh interpreter."""

    _name = "spawn"
    _process = SpawnProcess


class ForkContext(_Concrete):
    """Processes are forks of this one. Refused where that is known to break (shoal.process.fork_hazards), but for threads of Python's:
    a lock that one of them holds stays locked in the child."""

    _name = "fork"
    _process = ForkProcess


class DefaultContext(BaseContext):
    """What the functions of the module use: the context of set_start_method(), or else "forkserver"."""

    Process = Process

    def __init__(self, default: default_method.DefaultMethod = default_method.here) -> None:
        self._default = default

    def get_context(self, method: str | None = None, **options: Any) -> Any:
        if method is None and not options:
            return context_of(self._default.name or "auto")
        return super().get_context(method or self.get_start_method(), **options)

    def get_start_method(self, allow_none: bool = False) -> Any:
        """The default method; None where `allow_none` and nobody has set one. To read it does not fix it."""
        if self._default.name is None and allow_none:
            return None
        return self.get_context()._name

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Fixes what the module's own functions use, for programs written for `multiprocessing`.

        Args:
            force: also where it has been set; `method=None` takes the choice back.

        Raises:
            RuntimeError: it has been set; the message says where.
        """
        if self._default.name is not None and not force:
            raise RuntimeError(
                f"context has already been set: start method {self._default.name!r}, {self._default.fixed}. A part of a "
                f"program uses shoal.multiprocessing.get_context({method!r}), which concerns nobody else; "
                "force=True overrules the first call"
            )
        frame = sys._getframe(1)
        name = None if method is None else self.get_context(method)._name
        self._default.fix(name, f"set at {frame.f_code.co_filename}, line {frame.f_lineno}")


add_context(ForkServerContext, "auto", "forkserver")
add_context(SpawnContext, "spawn")
add_context(ForkContext, "fork")


@functools.cache
def _process_class(base: type[ProcessOfMethod], options: Options) -> type[ProcessOfMethod]:
    """A Process that starts with these options."""

    def start(process: Process) -> Any:
        return base._launch(process, options)

    return type(base.__name__, (base,), {"_Popen": staticmethod(start), "__module__": base.__module__})


default_context = DefaultContext()
