#!/usr/bin/env python3
"""Gymnasium's vector environments and those of shoal.compat.gymnasium: step() of 16 environments, alternating in one run.

.venv/bin/python benchmarks/gymnasium_envs.py [--task cartpole] [--rounds 9]

"image" returns 84 x 84 x 4 bytes after 0.1 ms of computing. All of them reset what has ended by the next step, which is counted as a step.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import beside_peers
import gymnasium
import numpy as np
from gymnasium import vector as peer

from shoal.compat import gymnasium as ours

TASKS: dict[str, Any] = {"cartpole": lambda: gymnasium.make("CartPole-v1"), "image": beside_peers.ImageEnv}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal AsyncVectorEnv": (ours.AsyncVectorEnv, {}),
    "gymnasium AsyncVectorEnv": (peer.AsyncVectorEnv, {"context": "fork"}),
    "gymnasium SyncVectorEnv": (peer.SyncVectorEnv, {}),
    "shoal AsyncVectorEnv, a worker a CPU": (ours.AsyncVectorEnv, {"num_workers": len(os.sched_getaffinity(0))}),
    "shoal SyncVectorEnv": (ours.SyncVectorEnv, {}),
}


def run(envs: Any, steps: int) -> int:
    actions = [np.full(envs.num_envs, action) for action in range(2)]
    for i in range(steps):
        envs.step(actions[i % 2])
    return steps * envs.num_envs


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    make = {
        side: functools.partial(kind, [TASKS[task]] * num_envs, **arguments)
        for side, (kind, arguments) in SIDES.items()
    }
    return beside_peers.stepped(make, run, steps, rounds)


if __name__ == "__main__":
    beside_peers.main(__doc__, "gymnasium", TASKS, measure, envs=16, steps=200)
