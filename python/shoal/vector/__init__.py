"""Many environments stepped as one. `make_vec` builds them, `VectorEnv` is what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.names import names_of

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

__getattr__ = names_of(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
