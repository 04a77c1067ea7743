"""Shoal: reinforcement learning in many processes over one memory.

    import shoal

    envs = shoal.make_vec("CartPole-v1", num_envs=64)      # a gymnasium.vector.VectorEnv
    result = shoal.learn.train("CartPole-v1", seed=1)

`import shoal` itself is cheap: a name's module is imported when the name is first used, torch only with `shoal.learn`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shoal._version import __version__
from shoal.names import names_of

if TYPE_CHECKING:
    from shoal import atari, collect, errors, identity, learn, multiprocessing, process, serve, vector
    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.collect.collector import Collector
    from shoal.errors import (
        ConnectionLost,
        Error,
        ForkRefused,
        PeerLost,
        RemoteError,
        StartFailed,
        TooManyFaults,
        WorkerDied,
    )
    from shoal.identity import PortLease, SharedDict, Snapshot, Worker, worker
    from shoal.ipc.tensors import share_module
    from shoal.serve.service import ModelService
    from shoal.vector.faults import Fault, FaultPolicy
    from shoal.vector.make import make_vec
    from shoal.vector.options import WorkerOptions
    from shoal.vector.pool import WorkerPool
    from shoal.vector.vector_env import VectorEnv

__all__ = [
    "AtariPreprocessing",
    "Collector",
    "ConnectionLost",
    "Error",
    "Fault",
    "FaultPolicy",
    "ForkRefused",
    "ModelService",
    "PeerLost",
    "PortLease",
    "RemoteError",
    "SharedDict",
    "Snapshot",
    "StartFailed",
    "TooManyFaults",
    "VectorEnv",
    "Worker",
    "WorkerDied",
    "WorkerOptions",
    "WorkerPool",
    "__version__",
    "atari",
    "collect",
    "errors",
    "identity",
    "learn",
    "make_vec",
    "multiprocessing",
    "process",
    "serve",
    "share_module",
    "vector",
    "worker",
]

_MODULE_OF = {
    "AtariPreprocessing": "shoal.atari.preprocessing",
    "Collector": "shoal.collect.collector",
    "ConnectionLost": "shoal.errors",
    "Error": "shoal.errors",
    "Fault": "shoal.vector.faults",
    "FaultPolicy": "shoal.vector.faults",
    "ForkRefused": "shoal.errors",
    "ModelService": "shoal.serve.service",
    "PeerLost": "shoal.errors",
    "PortLease": "shoal.identity",
    "RemoteError": "shoal.errors",
    "SharedDict": "shoal.identity",
    "Snapshot": "shoal.identity",
    "StartFailed": "shoal.errors",
    "TooManyFaults": "shoal.errors",
    "VectorEnv": "shoal.vector.vector_env",
    "Worker": "shoal.identity",
    "WorkerDied": "shoal.errors",
    "WorkerOptions": "shoal.vector.options",
    "WorkerPool": "shoal.vector.pool",
    "make_vec": "shoal.vector.make",
    "share_module": "shoal.ipc.tensors",
    "worker": "shoal.identity",
}
_SUBMODULES = frozenset(
    {"atari", "collect", "errors", "identity", "learn", "multiprocessing", "process", "serve", "vector"}
)


_find = names_of(
    "shoal", _MODULE_OF, needs="shoal.share_module needs torch:  pip install 'shoal[torch]'", roots=["torch"]
)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"shoal.{name}") if name in _SUBMODULES else _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
