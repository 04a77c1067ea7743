"""Who is measured: every contestant, the environments it can step, and the interpreter that it runs in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from shoal.bench.workloads import WORKLOADS

__all__ = ["CONTESTANTS", "PEERS", "Contestant", "interpreter", "needs", "peers_folder"]

PACKAGES = Path(__file__).parents[2]  # the folder that holds the shoal package


@dataclass(frozen=True)
class Contestant:
    """One way of stepping many environments.

    Attributes:
        adapter: the module of `shoal.bench.adapters` that builds it.
        mode: which of the module's modes.
        peer: the virtual environment that benchmarks/peers/setup makes for it; None where this interpreter will do.
        lends: observations are views that a later step overwrites; else they are the caller's to keep.
        own: the workloads of which it steps environments of its own; empty for contestants that step any in Python.
        plain: no engine, but what engines are measured by.
    """

    adapter: str
    mode: str
    peer: str | None = None
    lends: bool = False
    own: tuple[str, ...] = ()
    plain: bool = False

    @property
    def name(self) -> str:
        return f"{self.adapter}-{self.mode}"

    def steps(self, workload: str) -> bool:
        """Whether it has such environments, or can be given them."""
        if self.own:
            return workload in self.own
        makes = WORKLOADS[workload]
        return makes.make is not None and (makes.peer is None or self.peer is None)


CARTPOLE = ("native-cartpole",)


def _peer(name: str, *modes: str, lends: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> list[Contestant]:
    return [Contestant(name, mode, name, mode in lends, own) for mode in modes]


# In the order of the tables.
CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant("shoal", "auto"),
        Contestant("shoal", "process"),
        Contestant("shoal", "process-lent", lends=True),
        Contestant("shoal", "async"),
        Contestant("shoal", "serial"),
        Contestant("shoal", "atari", own=("pong",)),
        Contestant("shoal", "atari-serial", own=("pong",)),
        Contestant("shoal", "native", own=CARTPOLE),
        Contestant("shoal", "native-lent", own=CARTPOLE, lends=True),
        Contestant("shoal", "native-serial", own=CARTPOLE),
        Contestant("shoal", "native-async", own=CARTPOLE),
        Contestant("gymnasium", "sync"),
        Contestant("gymnasium", "sync-lent", lends=True),
        Contestant("gymnasium", "async"),
        Contestant("gymnasium", "async-lent", lends=True),
        Contestant("gymnasium", "numpy", own=CARTPOLE),
        *_peer("sb3", "dummy", "subproc"),
        *_peer("envpool", "sync", "async", own=("pong", "native-cartpole")),
        *_peer("ale", "sync", "async", own=("pong",)),
        *_peer("pufferlib", "serial", "sync", "async", lends=("serial", "sync", "async")),
        *_peer("pufferlib", "c-serial", "c-sync", lends=("c-serial", "c-sync"), own=CARTPOLE),
        *_peer("torchrl", "serial", "parallel", "async"),
        *_peer("tianshou", "dummy", "subproc", "shmem", "async"),
        *_peer("ding", "base", "subprocess", "async", lends=("async",)),
        Contestant("plain", "loops", lends=True, plain=True),
    )
}

# The virtual environments, and what is in them.
PEERS: dict[str, str] = {
    "sb3": "Stable-Baselines3",
    "envpool": "EnvPool",
    "ale": "ALE",
    "pufferlib": "PufferLib",
    "torchrl": "TorchRL",
    "tianshou": "Tianshou",
    "ding": "DI-engine",
}


def peers_folder() -> Path:
    """Where the peers' virtual environments lie: $SHOAL_PEERS, or what benchmarks/peers/setup makes."""
    return Path(os.environ.get("SHOAL_PEERS") or PACKAGES.parent / "build/peers").absolute()


def needs(contestant: Contestant, workload: str) -> str | None:
    """The virtual environment that the contestant runs in there; None where this interpreter will do."""
    return contestant.peer or (None if contestant.own else WORKLOADS[workload].peer)


def interpreter(peer: str | None) -> str | None:
    """The Python of a virtual environment of the peers, or this one for None; None where it is not installed."""
    if peer is None:
        return sys.executable
    python = peers_folder() / peer / "bin/python"
    return str(python) if os.access(python, os.X_OK) else None
