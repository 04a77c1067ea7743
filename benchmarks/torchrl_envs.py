#!/usr/bin/env python3
"""TorchRL's own ParallelEnv and Shoal's: step_and_maybe_reset() of 64 environments, alternating in one run.

    benchmarks/peers/setup torchrl
    PYTHONPATH=python build/peers/torchrl/bin/python benchmarks/torchrl_envs.py [--task cartpole] [--rounds 9]

"transforms" has a StepCounter and a RewardSum in each environment, which its worker computes.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import warnings
from typing import Any

import beside_peers

multiprocessing.set_start_method("fork")  # else TorchRL's import makes it spawn, and each of its processes import torch
warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torchrl import envs as peer  # noqa: E402
from torchrl.envs import Compose, GymEnv, RewardSum, StepCounter, TransformedEnv  # noqa: E402

from shoal.compat import torchrl as ours  # noqa: E402


def cartpole() -> peer.EnvBase:
    return GymEnv("CartPole-v1")


def transforms() -> peer.EnvBase:
    return TransformedEnv(cartpole(), Compose(StepCounter(), RewardSum()))


TASKS: dict[str, Any] = {"cartpole": cartpole, "transforms": transforms}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal ParallelEnv": (ours.ParallelEnv, {}),
    "torchrl ParallelEnv": (peer.ParallelEnv, {"mp_start_method": "fork"}),
    "torchrl SerialEnv": (peer.SerialEnv, {}),
    "shoal ParallelEnv, a process a CPU": (ours.ParallelEnv, {"num_processes": len(os.sched_getaffinity(0))}),
}


class Stepped:
    """Batched environments, and where they are."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs
        self.td = envs.reset()

    def run(self, steps: int) -> int:
        for _ in range(steps):
            _, self.td = self.envs.step_and_maybe_reset(self.envs.rand_action(self.td))
        return steps * self.envs.batch_size.numel()


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    # Those that are forked come before anything has started threads.
    order = sorted(SIDES, key=lambda name: not name.startswith("torchrl Parallel"))
    stepped = {name: Stepped(SIDES[name][0](num_envs, TASKS[task], **SIDES[name][1])) for name in order}
    for each in stepped.values():
        each.run(5)
    sides = beside_peers.compared({name: functools.partial(stepped[name].run, steps) for name in SIDES}, rounds)
    for each in stepped.values():
        each.envs.close()
    return sides


if __name__ == "__main__":
    torch.set_num_threads(1)
    beside_peers.main(__doc__, "torchrl", TASKS, measure, envs=64, steps=20)
