"""Who is measured: every contestant, the environments it can step, and the interpreter that it runs in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from shoal.bench.workloads import WORKLOADS

__all__ = ["CONTESTANTS", "PEERS", "Contestant", "interpreter", "peers_folder"]

PACKAGES = Path(__file__).parents[2]  # the folder that holds the shoal package


@dataclass(frozen=True)
class Contestant:
    """One way of stepping many environments.

    Attributes:
        adapter: the module of `shoal.bench.adapters` that builds it.
        mode: which of the module's modes.
        peer: the virtual environment that benchmarks/peers/setup makes for it; None where this interpreter will do.
        lends: observations are views that a later step overwrites; else they are the caller's to keep.
        native: steps environments of its own in C++; else any in Python.
        limit: no engine, but what engines are measured by.
    """

    adapter: str
    mode: str
    peer: str | None = None
    lends: bool = False
    native: bool = False
    limit: bool = False

    @property
    def name(self) -> str:
        return f"{self.adapter}-{self.mode}"

    def steps(self, workload: str) -> bool:
        """Whether it has such environments."""
        return self.native == (WORKLOADS[workload].make is None)


def _peer(name: str, *modes: str, lends: tuple[str, ...] = (), native: bool = False) -> list[Contestant]:
    return [Contestant(name, mode, name, mode in lends, native) for mode in modes]


# In the order of the tables.
CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("shoal", "process"),
        Contestant("shoal", "process-lent", lends=True),
        Contestant("shoal", "async"),
        Contestant("shoal", "serial"),
        Contestant("shoal", "native", native=True),
        Contestant("shoal", "native-lent", native=True, lends=True),
        Contestant("shoal", "native-serial", native=True),
        Contestant("shoal", "native-async", native=True),
        Contestant("gymnasium", "sync"),
        Contestant("gymnasium", "sync-lent", lends=True),
        Contestant("gymnasium", "async"),
        Contestant("gymnasium", "async-lent", lends=True),
        *_peer("sb3", "dummy", "subproc"),
        *_peer("envpool", "sync", "async", native=True),
        *_peer("pufferlib", "serial", "sync", "async", lends=("serial", "sync", "async")),
        *_peer("torchrl", "serial", "parallel", "async"),
        *_peer("tianshou", "dummy", "subproc", "shmem", "async"),
        *_peer("ding", "base", "subprocess", "async", lends=("async",)),
        Contestant("plain", "loops", lends=True, limit=True),
    )
}

# The virtual environments, and what is in them.
PEERS: dict[str, str] = {
    "sb3": "Stable-Baselines3",
    "envpool": "EnvPool",
    "pufferlib": "PufferLib",
    "torchrl": "TorchRL",
    "tianshou": "Tianshou",
    "ding": "DI-engine",
}


def peers_folder() -> Path:
    """Where the peers' virtual environments lie: $SHOAL_PEERS, or what benchmarks/peers/setup makes."""
    return Path(os.environ.get("SHOAL_PEERS") or PACKAGES.parent / "build/peers").absolute()


def interpreter(contestant: Contestant) -> str | None:
    """The Python that has what the contestant needs; None where that is not installed."""
    if contestant.peer is None:
        return sys.executable
    python = peers_folder() / contestant.peer / "bin/python"
    return str(python) if os.access(python, os.X_OK) else None
