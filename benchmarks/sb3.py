#!/usr/bin/env python3
"""Stable-Baselines3 on its own vectorised environments and on Shoal's: collect_rollouts() and A2C, alternating in one run.

.venv/bin/python benchmarks/sb3.py [--task cartpole] [--what collect] [--rounds 9]

The policy computes in this process, on both sides the same. "image" returns 84 x 84 x 4 bytes after 0.1 ms of computing; its policy
looks at every 12th pixel in both directions, since a convolution would take most of the time, or is the CNN ("image-cnn").
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import beside_peers
import torch
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common import vec_env as peer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from shoal.compat import sb3 as ours

NUM_ENVS = 16


class EveryTwelfthPixel(BaseFeaturesExtractor):
    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, 4 * 7 * 7)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, :, ::12, ::12].flatten(1)


TASKS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", "MlpPolicy", {}),
    "image": (
        beside_peers.ImageEnv,
        "CnnPolicy",
        {"features_extractor_class": EveryTwelfthPixel, "normalize_images": False},
    ),
    "image-cnn": (beside_peers.ImageEnv, "CnnPolicy", {}),
}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal SubprocVecEnv": (ours.SubprocVecEnv, {}),
    "sb3 SubprocVecEnv": (peer.SubprocVecEnv, {"start_method": "fork"}),
    "sb3 DummyVecEnv": (peer.DummyVecEnv, {}),
    "shoal SubprocVecEnv, a worker a CPU": (ours.SubprocVecEnv, {"num_workers": len(os.sched_getaffinity(0))}),
    "shoal DummyVecEnv": (ours.DummyVecEnv, {}),
}


def collecting(model: A2C, steps: int) -> Callable[[], int]:
    _, callback = model._setup_learn(10**9)
    callback.on_training_start({}, {})

    def run() -> int:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, steps)
        return steps * NUM_ENVS

    return run


def learning(model: A2C, steps: int) -> Callable[[], int]:
    def run() -> int:
        model.learn(steps * NUM_ENVS, reset_num_timesteps=False)
        return steps * NUM_ENVS

    return run


def measure(task: str, what: str, steps: int, rounds: int) -> dict[str, dict[str, Any]]:
    env, policy, policy_kwargs = TASKS[task]
    runs = {}
    models = []
    # Those that are forked come before anything has started threads.
    for name in sorted(SIDES, key=lambda name: SIDES[name][1].get("start_method", "~")):
        kind, arguments = SIDES[name]
        envs = make_vec_env(env, NUM_ENVS, seed=0, vec_env_cls=kind, vec_env_kwargs=arguments)
        n_steps = steps if what == "collect" else 5
        model = A2C(policy, envs, n_steps=n_steps, seed=0, device="cpu", policy_kwargs=dict(policy_kwargs))
        models.append(model)
        runs[name] = (collecting if what == "collect" else learning)(model, steps)
    for run in runs.values():
        run()
    sides = beside_peers.compared({name: runs[name] for name in SIDES}, rounds)
    for model in models:
        model.env.close()
    return sides


WHAT = {"collect": "collect_rollouts()", "a2c": "A2C"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--what", action="append", choices=WHAT)
    parser.add_argument("--steps", type=int, default=200, help="of every environment in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for task in options.task or ("cartpole", "image"):
        for what in options.what or WHAT:
            sides = measure(task, what, options.steps, options.rounds)
            title = beside_peers.title(task, NUM_ENVS, WHAT[what])
            beside_peers.tell("stable_baselines3", title, options.rounds, sides, "shoal_is", options.json)


if __name__ == "__main__":
    main()
