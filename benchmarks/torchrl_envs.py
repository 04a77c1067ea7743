#!/usr/bin/env python3
"""TorchRL's own ParallelEnv and Shoal's: step_and_maybe_reset() of 64 environments, alternating in one run.

    benchmarks/peers/setup torchrl
    PYTHONPATH=python build/peers/torchrl/bin/python benchmarks/torchrl_envs.py [--task cartpole] [--rounds 9]

"transforms" has a StepCounter and a RewardSum in each environment, which its worker computes.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import time
import warnings
from typing import Any

import in_turns

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


def run(envs: Any, td: Any, steps: int) -> Any:
    for _ in range(steps):
        _, td = envs.step_and_maybe_reset(envs.rand_action(td))
    return td


def measure(task: str, num_envs: int, steps: int, rounds: int) -> dict[str, Any]:
    # Those that are forked come before anything has started threads.
    order = sorted(SIDES, key=lambda name: not name.startswith("torchrl Parallel"))
    all_envs = {name: SIDES[name][0](num_envs, TASKS[task], **SIDES[name][1]) for name in order}
    tds = {name: run(envs, envs.reset(), 5) for name, envs in all_envs.items()}

    def rate(name: str) -> float:
        start = time.perf_counter()
        tds[name] = run(all_envs[name], tds[name], steps)
        return steps * num_envs / (time.perf_counter() - start)

    rates = in_turns.rates_of({name: functools.partial(rate, name) for name in SIDES}, rounds)
    for envs in all_envs.values():
        envs.close()
    sides = in_turns.compared(rates, "shoal_is", first_is_above=True)
    return {"task": task, "num_envs": num_envs, "rounds": rounds, "sides": sides}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="of every environment in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for task in options.task or TASKS:
        result = measure(task, options.envs, options.steps, options.rounds)
        print(f"{task}, {options.envs} environments, {options.rounds} rounds", flush=True)
        in_turns.show(result["sides"], "shoal_is")
        if options.json:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
