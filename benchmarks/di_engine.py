#!/usr/bin/env python3
"""DI-engine's environment managers and Shoal's, stepped with the same environments, alternating in one run.

benchmarks/peers/setup ding && PYTHONPATH=python build/peers/ding/bin/python benchmarks/di_engine.py [--envs 64] [--rounds 7]

A step is `ready_obs`, an action for each of its environments, and `step`. "counting" has an environment that only counts, "cartpole" is
Gymnasium's in DI-engine's wrapper. DI-engine's managers run as it recommends for reproducible runs, `reset_inplace=True`, as ours do.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

warnings.filterwarnings("ignore")

import beside_peers  # noqa: E402
import ding.envs as peer  # noqa: E402
import gymnasium  # noqa: E402
import in_turns  # noqa: E402
import numpy as np  # noqa: E402
from easydict import EasyDict  # noqa: E402

from shoal.compat import ding as ours  # noqa: E402


class CountingEnv:
    """A thousand steps an episode, which compute nothing."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.reward_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.steps = 0

    def reset(self) -> np.ndarray:
        self.steps = 0
        return np.zeros(4, np.float32)

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs = np.full(4, self.steps, np.float32)
        return peer.BaseEnvTimestep(obs, np.ones(1, np.float32), self.steps >= 1000, {})

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        pass

    def close(self) -> None:
        pass


def cartpole() -> Any:
    return peer.DingEnvWrapper(gymnasium.make("CartPole-v1"))


TASKS: dict[str, Callable[[], Any]] = {"counting": CountingEnv, "cartpole": cartpole}
A_CPU = {"num_workers": len(os.sched_getaffinity(0))}

KINDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "v2": ("SubprocessEnvManagerV2", [{}, A_CPU]),
    "sync": ("SyncSubprocessEnvManager", [{}, A_CPU]),
    "async": ("AsyncSubprocessEnvManager", [{}, A_CPU]),
    "base_v2": ("BaseEnvManagerV2", [{}]),
}
"""The class, and with which of our own settings it is measured."""


def stepping(
    kind: Any, make: Callable[[], Any], count: int, more: dict[str, Any]
) -> tuple[Any, Callable[[float], float]]:
    """The manager, and what steps it for so many seconds and returns steps/s."""
    inplace = {} if "Base" in kind.__name__ else {"reset_inplace": True}
    envs = kind([make] * count, EasyDict({**kind.default_config(), **inplace, **more}))
    envs.seed(0, dynamic_seed=False)
    envs.launch()
    actions = [np.array(i % 2) for i in range(count)]

    def turn() -> int:
        obs = envs.ready_obs
        if isinstance(obs, dict):
            return len(envs.step(dict(zip(obs, actions, strict=False))))
        return len(envs.step(actions[: len(obs)]))

    def run(seconds: float) -> float:
        steps, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            steps += turn()
        return steps / passed

    return envs, run


def measure(task: str, kind: str, count: int, rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    name, settings = KINDS[kind]
    sides = {f"DI-engine's {name}": (getattr(peer, name), {})}
    for more in settings:
        sides[f"Shoal's {name}" + (", a worker a CPU" if more else "")] = (getattr(ours, name), more)
    running = {side: stepping(cls, TASKS[task], count, more) for side, (cls, more) in sides.items()}
    for _, run in running.values():
        run(0.3)
    rates = in_turns.rates_of({side: functools.partial(run, seconds) for side, (_, run) in running.items()}, rounds)
    for envs, _ in running.values():
        envs.close()
    return in_turns.compared(rates, "times_theirs", first_is_above=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, for each side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for task in options.task or TASKS:
        for kind in options.kind or KINDS:
            sides = measure(task, kind, options.envs, options.rounds, options.seconds)
            title = beside_peers.title(task, options.envs, KINDS[kind][0])
            beside_peers.tell("di_engine", title, options.rounds, sides, "times_theirs", options.json)


if __name__ == "__main__":
    main()
