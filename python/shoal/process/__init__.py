"""Worker processes: how they are started, what they are given, how they end.

    launcher = shoal.process.launcher("auto", preload=["gymnasium"])
    workers = launcher.start([(target, arguments), …])      # target(context, *arguments) in each worker

Most users meet this through `shoal.make_vec(context=…)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _OF_CORE:
        from shoal import _core

        value = getattr(_core.process, name)
    else:
        raise AttributeError(f"module 'shoal.process' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
