"""Many environments stepped as one. `make_vec` builds them, `VectorEnv` is what it returns."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.vector.async_env import AsyncVectorEnv
    from shoal.vector.faults import Fault, FaultPolicy
    from shoal.vector.make import make_vec
    from shoal.vector.options import WorkerOptions
    from shoal.vector.pool import WorkerPool
    from shoal.vector.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv", "Fault", "FaultPolicy", "VectorEnv", "WorkerOptions", "WorkerPool", "make_vec"]

_MODULE_OF = {
    "AsyncVectorEnv": "shoal.vector.async_env",
    "Fault": "shoal.vector.faults",
    "FaultPolicy": "shoal.vector.faults",
    "VectorEnv": "shoal.vector.vector_env",
    "WorkerOptions": "shoal.vector.options",
    "WorkerPool": "shoal.vector.pool",
    "make_vec": "shoal.vector.make",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'shoal.vector' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
