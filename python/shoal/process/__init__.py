"""Worker processes: how they are started, what they are given, how they end.

    launcher = shoal.process.launcher("auto", preload=["gymnasium"])
    workers = launcher.start([(target, arguments), …])      # target(context, *arguments) in each worker

Most users meet this through `shoal.make_vec(context=…)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.names import names_of

if TYPE_CHECKING:
    from shoal._core.process import WorkerContext, WorkerProcess, fork_hazards, gpu_in_use
    from shoal.ipc.pickling import PicklingError
    from shoal.process._launcher import Launcher, close_launchers, keep_idle_zygotes, launcher, zygotes

__all__ = [
    "Launcher",
    "PicklingError",
    "WorkerContext",
    "WorkerProcess",
    "close_launchers",
    "fork_hazards",
    "gpu_in_use",
    "keep_idle_zygotes",
    "launcher",
    "zygotes",
]

# A zygote imports this package first of all, so nothing is imported before it is used.
_MODULE_OF = {
    "Launcher": "shoal.process._launcher",
    "PicklingError": "shoal.ipc.pickling",
    "close_launchers": "shoal.process._launcher",
    "keep_idle_zygotes": "shoal.process._launcher",
    "launcher": "shoal.process._launcher",
    "zygotes": "shoal.process._launcher",
}
_OF_CORE = frozenset({"WorkerContext", "WorkerProcess", "fork_hazards", "gpu_in_use"})
_find = names_of(__name__, _MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _OF_CORE:
        return _find(name)
    from shoal import _core

    return getattr(_core.process, name)


def __dir__() -> list[str]:
    return sorted(__all__)
