"""TorchRL's parallel environments and collectors on Shoal's engine.

from shoal.compat.torchrl import Collector, ParallelEnv      # the peer's arguments, methods and results

env = ParallelEnv(64, lambda: GymEnv("CartPole-v1"))

TorchRL is imported with the first of these names that is used. What else its `envs` and `collectors` have (GymEnv, TransformedEnv, …)
is here, too, as it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

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

__getattr__ = names_of(
    "shoal.compat.torchrl",
    {
        **dict.fromkeys(("Collector", "MultiAsyncCollector", "MultiCollector", "MultiSyncCollector"), _COLLECTORS),
        # what they were called until TorchRL 0.13
        "MultiSyncDataCollector": f"{_COLLECTORS}:MultiSyncCollector",
        "MultiaSyncDataCollector": f"{_COLLECTORS}:MultiAsyncCollector",
        "SyncDataCollector": f"{_COLLECTORS}:Collector",
        "ParallelEnv": "shoal.compat.torchrl.parallel_env",
        "SerialEnv": "shoal.compat.torchrl.serial_env",
    },
    ["torchrl.envs", "torchrl.collectors"],
    "shoal.compat.torchrl needs TorchRL:  pip install 'shoal[torchrl]'  (it needs torch 2.7, and replaces an older one)",
    ["torchrl", "tensordict", "torch"],
)


def __dir__() -> list[str]:
    return sorted(__all__)
