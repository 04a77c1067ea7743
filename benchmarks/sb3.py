#!/usr/bin/env python3
"""Stable-Baselines3 on its own vectorised environments and on Shoal's: collect_rollouts() and A2C, alternating in one run.

.venv/bin/python benchmarks/sb3.py [--task cartpole] [--what collect] [--rounds 9]

The policy computes in this process, on both sides the same. "image" returns 84 x 84 x 4 bytes after 0.1 ms of computing; its policy
looks at every 12th pixel in both directions, since a convolution would take most of the time, or is the CNN ("image-cnn").
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import in_turns
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common import vec_env as peer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from shoal.compat import sb3 as ours

NUM_ENVS = 16


class ImageEnv(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(4)
    metadata = {"render_modes": []}

    def __init__(self, render_mode: str | None = None) -> None:
        self.steps = 0
        self.frames = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.frames[0].copy(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.perf_counter() + 1e-4
        self.steps += 1
        while time.perf_counter() < end:
            pass
        return self.frames[self.steps % 8].copy(), 1.0, self.steps >= 500, False, {}


class EveryTwelfthPixel(BaseFeaturesExtractor):
    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, 4 * 7 * 7)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, :, ::12, ::12].flatten(1)


TASKS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", "MlpPolicy", {}),
    "image": (ImageEnv, "CnnPolicy", {"features_extractor_class": EveryTwelfthPixel, "normalize_images": False}),
    "image-cnn": (ImageEnv, "CnnPolicy", {}),
}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal SubprocVecEnv": (ours.SubprocVecEnv, {}),
    "sb3 SubprocVecEnv": (peer.SubprocVecEnv, {"start_method": "fork"}),
    "sb3 DummyVecEnv": (peer.DummyVecEnv, {}),
    "shoal SubprocVecEnv, a worker a CPU": (ours.SubprocVecEnv, {"num_workers": len(os.sched_getaffinity(0))}),
    "shoal DummyVecEnv": (ours.DummyVecEnv, {}),
}


def collecting(model: A2C, steps: int) -> Callable[[], None]:
    _, callback = model._setup_learn(10**9)
    callback.on_training_start({}, {})
    return lambda: model.collect_rollouts(model.env, callback, model.rollout_buffer, steps) and None


def learning(model: A2C, steps: int) -> Callable[[], None]:
    return lambda: model.learn(steps * NUM_ENVS, reset_num_timesteps=False) and None


def measure(task: str, what: str, steps: int, rounds: int) -> dict[str, Any]:
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

    def rate(name: str) -> float:
        start = time.perf_counter()
        runs[name]()
        return steps * NUM_ENVS / (time.perf_counter() - start)

    rates = in_turns.rates_of({name: functools.partial(rate, name) for name in SIDES}, rounds)
    for model in models:
        model.env.close()
    sides = in_turns.compared(rates, "shoal_is", first_is_above=True)
    return {"task": task, "what": what, "num_envs": NUM_ENVS, "rounds": rounds, "sides": sides}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--what", action="append", choices=("collect", "a2c"))
    parser.add_argument("--steps", type=int, default=200, help="of every environment in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for task in options.task or ("cartpole", "image"):
        for what in options.what or ("collect", "a2c"):
            result = measure(task, what, options.steps, options.rounds)
            print(f"{task}, {what}, {NUM_ENVS} environments, {options.rounds} rounds", flush=True)
            in_turns.show(result["sides"], "shoal_is")
            if options.json:
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
