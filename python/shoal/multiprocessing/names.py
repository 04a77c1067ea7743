"""The public names of this package that are the same whatever the start method, each with the module that has it."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MODULE_OF", "find"]

MODULE_OF = {
    **dict.fromkeys(
        (
            "ProcessContext",
            "ProcessException",
            "ProcessExitedException",
            "ProcessRaisedException",
            "SpawnContext",
            "spawn",
            "start_processes",
        ),
        "shoal.multiprocessing.spawning",
    ),
    "SharedArray": "shoal.ipc.arrays",
    **dict.fromkeys(
        (
            "SharedTensor",
            "cuda_collect",
            "get_all_sharing_strategies",
            "get_sharing_strategy",
            "is_shared",
            "set_sharing_strategy",
            "share_memory_",
            "share_module",
        ),
        "shoal.ipc.tensors",
    ),
    "LogRelay": "shoal.multiprocessing.logging",
}


def find(name: str) -> Any:
    """What has this name; its module is imported now."""
    return getattr(importlib.import_module(MODULE_OF[name]), name)
