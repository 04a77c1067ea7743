#!/usr/bin/env python3
"""SuperSuit's vector environments of parallel environments and shoal.compat.pettingzoo's, alternating in one run.

    benchmarks/peers/setup pettingzoo
    PYTHONPATH=python build/peers/pettingzoo/bin/python benchmarks/pettingzoo_envs.py [--task counting] [--rounds 9]

Environments of four agents; a step is one of an environment, with an action for each agent. "counting" only counts, "image" gives each
agent 84 x 84 x 4 bytes after 0.1 ms of computing.
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from typing import Any

import beside_peers
import numpy as np
import supersuit
from gymnasium import spaces
from pettingzoo import ParallelEnv

from shoal.compat import pettingzoo as ours

warnings.filterwarnings("ignore")

AGENTS = [f"agent_{i}" for i in range(4)]


class Herd(ParallelEnv):
    """Agents that all end after 500 steps."""

    metadata = {"name": "herd_v0", "render_modes": []}
    render_mode = None

    def __init__(self, shape: tuple[int, ...] = (4,), seconds: float = 0.0) -> None:
        self.possible_agents = list(AGENTS)
        self.agents: list[str] = []
        self.seconds = seconds
        self.spaces = spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(2)
        frames = np.random.default_rng(0).integers(0, 256, (8, *shape), np.uint8)
        self.seen = [dict.fromkeys(AGENTS, frame) for frame in frames]

    def observation_space(self, agent: str) -> spaces.Box:
        return self.spaces[0]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self.spaces[1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.agents = list(AGENTS)
        self.steps = 0
        return self.seen[0], {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        end = time.perf_counter() + self.seconds
        self.steps += 1
        while time.perf_counter() < end:
            pass
        ended = self.steps >= 500
        if ended:
            self.agents = []
        falses = dict.fromkeys(AGENTS, False)
        infos: dict[str, Any] = {agent: {} for agent in AGENTS}
        return self.seen[self.steps % 8], dict.fromkeys(AGENTS, 1.0), falses, dict.fromkeys(AGENTS, ended), infos


TASKS: dict[str, Any] = {"counting": Herd, "image": functools.partial(Herd, (84, 84, 4), 1e-4)}
CPUS = len(os.sched_getaffinity(0))


def concatenated(make: Any, num_envs: int, num_cpus: int) -> Any:
    return supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(make()), num_envs, num_cpus=num_cpus, base_class="gymnasium"
    )


SIDES: dict[str, Any] = {
    "shoal make_vec, a worker a CPU": lambda make, num_envs: ours.make_vec(make, num_envs, num_workers=CPUS),
    "supersuit concat_vec_envs_v1, num_cpus": lambda make, num_envs: concatenated(make, num_envs, CPUS),
    "supersuit concat_vec_envs_v1, num_cpus=0": lambda make, num_envs: concatenated(make, num_envs, 0),
    "shoal make_vec, num_workers=0": lambda make, num_envs: ours.make_vec(make, num_envs, num_workers=0),
}


def run(envs: Any, steps: int) -> int:
    actions = [np.full(envs.num_envs, action) for action in range(2)]
    for i in range(steps):
        envs.step(actions[i % 2])
    return steps * envs.num_envs // len(AGENTS)


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    make = {side: functools.partial(its, TASKS[task], num_envs) for side, its in SIDES.items()}
    return beside_peers.stepped(make, run, steps, rounds)


if __name__ == "__main__":
    beside_peers.main(__doc__, "pettingzoo", TASKS, measure, envs=16, steps=200)
