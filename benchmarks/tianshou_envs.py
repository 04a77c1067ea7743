#!/usr/bin/env python3
"""tianshou's own vectorised environments and Shoal's: step() of 16 environments, alternating in one run.

    benchmarks/peers/setup tianshou
    PYTHONPATH=python build/peers/tianshou/bin/python benchmarks/tianshou_envs.py [--task cartpole] [--rounds 9]

"image" returns 84 x 84 x 4 bytes after 0.1 ms of computing. What ends is reset by the caller, as tianshou's collectors do.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from typing import Any

import gymnasium
import in_turns
import numpy as np
from gymnasium import spaces
from tianshou import env as peer

from shoal.compat import tianshou as ours

NUM_ENVS = 16


class ImageEnv(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0
        self.frames = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.frames[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.perf_counter() + 1e-4
        self.steps += 1
        while time.perf_counter() < end:
            pass
        return self.frames[self.steps % 8], 1.0, self.steps >= 500, False, {}


TASKS: dict[str, Any] = {"cartpole": lambda: gymnasium.make("CartPole-v1"), "image": ImageEnv}

SIDES: dict[str, tuple[Any, dict[str, Any]]] = {
    "shoal SubprocVectorEnv": (ours.SubprocVectorEnv, {}),
    "tianshou SubprocVectorEnv": (peer.SubprocVectorEnv, {"context": "fork"}),
    "tianshou ShmemVectorEnv": (peer.ShmemVectorEnv, {}),
    "tianshou DummyVectorEnv": (peer.DummyVectorEnv, {}),
    "shoal SubprocVectorEnv, a worker a CPU": (ours.SubprocVectorEnv, {"num_workers": len(os.sched_getaffinity(0))}),
}


def run(envs: Any, steps: int) -> None:
    for i in range(steps):
        _, _, terminated, truncated, _ = envs.step(np.full(NUM_ENVS, i % 2))
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            envs.reset(ended)


def measure(task: str, steps: int, rounds: int) -> dict[str, Any]:
    # Those that are forked come before anything has started threads.
    order = sorted(SIDES, key=lambda name: name.startswith("shoal"))
    vec_envs = {name: SIDES[name][0]([TASKS[task]] * NUM_ENVS, **SIDES[name][1]) for name in order}
    for envs in vec_envs.values():
        envs.reset(seed=0)
        run(envs, steps)

    def rate(name: str) -> float:
        start = time.perf_counter()
        run(vec_envs[name], steps)
        return steps * NUM_ENVS / (time.perf_counter() - start)

    rates = in_turns.rates_of({name: functools.partial(rate, name) for name in SIDES}, rounds)
    for envs in vec_envs.values():
        envs.close()
    sides = in_turns.compared(rates, "shoal_is", first_is_above=True)
    return {"task": task, "num_envs": NUM_ENVS, "rounds": rounds, "sides": sides}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--steps", type=int, default=200, help="of every environment in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for task in options.task or TASKS:
        result = measure(task, options.steps, options.rounds)
        print(f"{task}, {NUM_ENVS} environments, {options.rounds} rounds", flush=True)
        in_turns.show(result["sides"], "shoal_is")
        if options.json:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
