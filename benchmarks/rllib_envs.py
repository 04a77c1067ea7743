#!/usr/bin/env python3
"""RLlib's environment runner over its own environments and over Shoal's: sample() of 16 environments, alternating in one run.

    benchmarks/peers/setup ray
    PYTHONPATH=python build/peers/ray/bin/python benchmarks/rllib_envs.py [--task cartpole] [--rounds 9]

The runner acts at random in this process, so that no network is part of what is measured; its connectors and episodes are. "image"
returns 84 x 84 x 4 bytes after 0.1 ms of computing.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import beside_peers
import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune import register_env

import shoal

TASKS: dict[str, Any] = {"cartpole": lambda: gymnasium.make("CartPole-v1"), "image": beside_peers.ImageEnv}
SIDES: dict[str, tuple[str, int]] = {
    "shoal, a worker a CPU": ("vector_entry_point", len(os.sched_getaffinity(0))),
    "rllib, sync": ("sync", 0),
    "rllib, async": ("async", 0),
    "shoal, num_workers=0": ("vector_entry_point", 0),
}


def runner(task: str, mode: str, num_workers: int, num_envs: int) -> SingleAgentEnvRunner:
    make = TASKS[task]
    name = f"{task}-{mode}-{num_workers}"
    if mode == "vector_entry_point":
        register_env(name, lambda context: shoal.make_vec(make, context["num_envs"], num_workers=num_workers))
    else:
        register_env(name, lambda context: make())
    config = PPOConfig().environment(name).debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, gym_env_vectorize_mode=mode)
    return SingleAgentEnvRunner(config=config)


def run(sampler: SingleAgentEnvRunner, steps: int) -> int:
    episodes = sampler.sample(num_timesteps=steps, random_actions=True)
    return sum(map(len, episodes))


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    runners = {name: runner(task, *SIDES[name], num_envs) for name in SIDES}
    for sampler in runners.values():
        run(sampler, num_envs)
    sides = beside_peers.compared(
        {name: functools.partial(run, runners[name], steps * num_envs) for name in SIDES}, rounds
    )
    for sampler in runners.values():
        sampler.stop()
    return sides


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    beside_peers.main(__doc__, "rllib", TASKS, measure, envs=16, steps=50)
    ray.shutdown()
