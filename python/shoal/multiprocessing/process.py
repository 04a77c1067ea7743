"""Process objects: CPython's, with how they start replaced.

What a process gets, whichever way it starts: this process's environment variables, working folder, search path,
arguments, warning filters, stdout and stderr as they are at start(), its GPUs and its thread limits, and the default
Ctrl-C. It does not see the variables by which a launcher (torchrun, mpirun, srun) told this process its place in a group;
those that this program has set itself it does see. When this process is killed, it has five seconds to notice
(`parent_process().sentinel`) before it is killed, too.

Targets and arguments may be lambdas, closures, local classes and what a notebook defines. What `__main__` defines travels
by value, and the main script is not run again in the new process, unless something there asks for a name of `__main__`
that did not travel.
"""

from __future__ import annotations

from multiprocessing import context as _cpython
from multiprocessing.process import BaseProcess, active_children, current_process, parent_process
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.multiprocessing.context import Options

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
    """A process of the default context; as `multiprocessing.Process`, with this module's launchers behind it."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        from shoal.multiprocessing.context import default_context

        return default_context.get_context().Process._Popen(process_obj)

    @staticmethod
    def _after_fork() -> None:
        BaseProcess._after_fork()  # type: ignore[attr-defined]


class ProcessOfMethod(Process):
    """A process of one start method."""

    @classmethod
    def _Popen(cls, process_obj: Any) -> Any:
        from shoal.multiprocessing.context import Options

        return cls._launch(process_obj, Options())

    @classmethod
    def _launch(cls, process_obj: Any, options: Options) -> Any:
        from shoal.multiprocessing.popen import LaunchedPopen

        return LaunchedPopen(process_obj, cls._start_method, options)


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

        return ForkPopen(process_obj, options)
