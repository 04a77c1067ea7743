"""TorchRL's parallel environments and collectors on Shoal's engine.

from shoal.compat.torchrl import Collector, ParallelEnv      # the peer's arguments, methods and results

env = ParallelEnv(64, lambda: GymEnv("CartPole-v1"))

TorchRL is imported with the first of these names that is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.compat.torchrl.collectors import Collector, MultiAsyncCollector, MultiCollector, MultiSyncCollector
    from shoal.compat.torchrl.collectors import Collector as SyncDataCollector
    from shoal.compat.torchrl.collectors import MultiAsyncCollector as MultiaSyncDataCollector
    from shoal.compat.torchrl.collectors import MultiSyncCollector as MultiSyncDataCollector
    from shoal.compat.torchrl.parallel_env import ParallelEnv
    from shoal.compat.torchrl.serial_env import SerialEnv

__all__ = [
    "Collector",
    "MultiAsyncCollector",
    "MultiCollector",
    "MultiSyncCollector",
    "MultiSyncDataCollector",
    "MultiaSyncDataCollector",
    "ParallelEnv",
    "SerialEnv",
    "SyncDataCollector",
]

_COLLECTORS = "shoal.compat.torchrl.collectors"
_PLACE_OF = {
    "Collector": (_COLLECTORS, "Collector"),
    "MultiAsyncCollector": (_COLLECTORS, "MultiAsyncCollector"),
    "MultiCollector": (_COLLECTORS, "MultiCollector"),
    "MultiSyncCollector": (_COLLECTORS, "MultiSyncCollector"),
    # what they were called until TorchRL 0.13
    "MultiSyncDataCollector": (_COLLECTORS, "MultiSyncCollector"),
    "MultiaSyncDataCollector": (_COLLECTORS, "MultiAsyncCollector"),
    "ParallelEnv": ("shoal.compat.torchrl.parallel_env", "ParallelEnv"),
    "SerialEnv": ("shoal.compat.torchrl.serial_env", "SerialEnv"),
    "SyncDataCollector": (_COLLECTORS, "Collector"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'shoal.compat.torchrl' has no attribute {name!r}")
    module, own_name = _PLACE_OF[name]
    try:
        value = getattr(importlib.import_module(module), own_name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torchrl", "tensordict"):
            raise
        raise ModuleNotFoundError(
            "shoal.compat.torchrl needs TorchRL:  pip install 'shoal[torchrl]'", name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
