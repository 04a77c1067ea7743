#!/usr/bin/env python3
"""tianshou's own vectorised environments and Shoal's: step() of 16 environments, alternating in one run.

    benchmarks/peers/setup tianshou
    PYTHONPATH=python build/peers/tianshou/bin/python benchmarks/tianshou_envs.py [--task cartpole] [--rounds 9]

"image" returns 84 x 84 x 4 bytes after 0.1 ms of computing. What ends is reset by the caller, as tianshou's collectors do.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import beside_peers
import gymnasium
import numpy as np
from tianshou import env as peer

from shoal.compat import tianshou as ours

TASKS: dict[str, Any] = {"cartpole": lambda: gymnasium.make("CartPole-v1"), "image": beside_peers.ImageEnv}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal SubprocVectorEnv": (ours.SubprocVectorEnv, {}),
    "tianshou SubprocVectorEnv": (peer.SubprocVectorEnv, {"context": "fork"}),
    "tianshou ShmemVectorEnv": (peer.ShmemVectorEnv, {}),
    "tianshou DummyVectorEnv": (peer.DummyVectorEnv, {}),
    "shoal SubprocVectorEnv, a worker a CPU": (ours.SubprocVectorEnv, {"num_workers": len(os.sched_getaffinity(0))}),
}


def run(envs: Any, steps: int) -> int:
    for i in range(steps):
        _, _, terminated, truncated, _ = envs.step(np.full(len(envs), i % 2))
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            envs.reset(ended)
    return steps * len(envs)


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    make = {
        side: functools.partial(kind, [TASKS[task]] * num_envs, **arguments)
        for side, (kind, arguments) in SIDES.items()
    }
    return beside_peers.stepped(make, run, steps, rounds)


if __name__ == "__main__":
    beside_peers.main(__doc__, "tianshou", TASKS, measure, envs=16, steps=200)
