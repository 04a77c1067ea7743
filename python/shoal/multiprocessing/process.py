"""Process objects: CPython's, with how they start replaced.

What a process gets, whichever way it starts: this process's environment variables, working folder, search path,
arguments, warning filters, stdout and stderr as they are at start(), its GPUs and its thread limits, and the default
Ctrl-C. It does not see the variables by which a launcher (torchrun, mpirun, srun) told this process its place in a group;
those that this program has set itself it does see. When this process is killed, it has five seconds to notice
(`parent_process().sentinel`) before it is killed, too. What one process is to have on top of that are options of `Process`.

Targets and arguments may be lambdas, closures, local classes and what a notebook defines. What `__main__` defines travels
by value, and the main script is not run again in the new process, unless something there asks for a name of `__main__`
that did not travel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import context as _cpython
from multiprocessing.process import BaseProcess, active_children, current_process, parent_process
from typing import TYPE_CHECKING, Any

from shoal.multiprocessing.settings import Prepared, Seed, Settings, allowed_cpus, entropy, thread_count
from shoal.multiprocessing.start_methods import Options, default_context

if TYPE_CHECKING:
    from shoal.multiprocessing.logging import LogRelay, RelayEnd

__all__ = [
    "BaseProcess",
    "ForkProcess",
    "ForkServerProcess",
    "Process",
    "ProcessOfMethod",
    "SpawnProcess",
    "active_children",
    "current_process",
    "parent_process",
]


class Process(_cpython.Process):
    """A process of the default context; as `multiprocessing.Process`, with this module's launchers behind it.

    Args:
        threads: of OpenMP, MKL, OpenBLAS, NumExpr and torch; None: as the context has it.
        seed: for `random`, `numpy.random` and, where it is imported, torch; None leaves them as they are.
        affinity: the CPUs that it may use; None: this process's.
        relay: a `LogRelay`, or True, brings here what it prints and logs.

    Raises:
        TypeError, ValueError: an option that means nothing.
    """

    _threads: int | None = None

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        daemon: bool | None = None,
        threads: int | None = None,
        seed: Seed = None,
        affinity: Iterable[int] | None = None,
        relay: LogRelay | bool | None = None,
    ) -> None:
        super().__init__(group, target, name, args, kwargs, daemon=daemon)
        cpus = () if affinity is None else (allowed_cpus(affinity, "Process(affinity=…)"),)
        count = thread_count(threads, "Process(threads=…)")
        settings = Settings(count, entropy(seed, "Process(seed=…)"), cpus, _end_of(relay))
        if settings != Settings():
            self._threads = count
            self.run = Prepared(self, settings)  # type: ignore[method-assign]  # called as the method is

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return default_context().Process._Popen(process_obj)

    def _with_own(self, options: Options) -> Options:
        """The context's options as this process is to have them."""
        return options if self._threads is None else dataclasses.replace(options, threads=self._threads)

    @staticmethod
    def _after_fork() -> None:
        BaseProcess._after_fork()  # type: ignore[attr-defined]  # CPython has it, typeshed does not


def _end_of(relay: LogRelay | bool | None) -> RelayEnd | None:
    """The process's end of a relay, where there is one."""
    if relay is None or relay is False:
        return None
    from shoal.multiprocessing.logging import relay_of

    return relay_of(relay, "Process(relay=…)").end()


class ProcessOfMethod(Process):
    """A process of one start method."""

    _start_method: str

    @classmethod
    def _Popen(cls, process_obj: Any) -> Any:
        return cls._launch(process_obj, Options())

    @classmethod
    def _launch(cls, process_obj: Any, options: Options) -> Any:
        from shoal.multiprocessing.popen import LaunchedPopen

        return LaunchedPopen(process_obj, cls._start_method, process_obj._with_own(options))


class ForkServerProcess(ProcessOfMethod):
    """A process forked from a zygote."""

    _start_method = "forkserver"


class SpawnProcess(ProcessOfMethod):
    """A process that is a fresh interpreter."""

    _start_method = "spawn"

    @staticmethod
    def _after_fork() -> None:
        """Nothing was forked."""


class ForkProcess(ProcessOfMethod):
    """A process forked from this one."""

    _start_method = "fork"

    @classmethod
    def _launch(cls, process_obj: Any, options: Options) -> Any:
        from shoal.multiprocessing.popen import ForkPopen

        return ForkPopen(process_obj, process_obj._with_own(options))
