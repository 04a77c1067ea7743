"""What benchmarks of adapters have in common: an environment of pictures, a command for several tasks, and how a result is told."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import gymnasium
import in_turns
import numpy as np
from gymnasium import spaces


class ImageEnv(gymnasium.Env):
    """84 x 84 x 4 bytes after 0.1 ms of computing; 500 steps an episode."""

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


TITLES = {
    "cartpole": "CartPole-v1",
    "transforms": "CartPole-v1 with transforms",
    "counting": "an environment that only counts",
    "image": "84 x 84 x 4 images",
    "image-cnn": "84 x 84 x 4 images, a CNN",
}


def title(task: str, num_envs: int, what: str = "") -> str:
    """What was measured, for people."""
    return ", ".join(filter(None, (what, TITLES.get(task, task), f"{num_envs} environments")))


def compared(runs: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, dict[str, Any]]:
    """Each side's function, which makes steps and returns how many, once in every round; see `in_turns.compared`."""

    def rate(run: Callable[[], int]) -> float:
        start = time.perf_counter()
        steps = run()
        return steps / (time.perf_counter() - start)

    rates = in_turns.rates_of({side: lambda run=run: rate(run) for side, run in runs.items()}, rounds)
    return in_turns.compared(rates, "shoal_is", first_is_above=True)


def stepped(
    make: Mapping[str, Callable[[], Any]], run: Callable[[Any, int], int], steps: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Each side's vectorised environments, of which `run(envs, steps)` says how many steps it made, once before the first round.

    Peers' are made first: those that are forked come before anything has started threads.
    """
    vec_envs = {side: make[side]() for side in sorted(make, key=lambda side: side.startswith("shoal"))}
    for envs in vec_envs.values():
        envs.reset(seed=0)
        run(envs, steps)
    sides = compared({side: lambda envs=vec_envs[side]: run(envs, steps) for side in make}, rounds)
    for envs in vec_envs.values():
        envs.close()
    return sides


def tell(page: str, measured: str, rounds: int, sides: dict[str, dict[str, Any]], ratio: str, as_json: bool) -> None:
    """Prints a result; with `as_json` also as a line that adapters.py keeps.

    Args:
        page: of docs/migrating.
        measured: its title.
        ratio: the key of `in_turns.compared`.
    """
    print(f"{measured}, {rounds} rounds", flush=True)
    in_turns.show(sides, ratio)
    if as_json:
        result = {"page": page, "title": measured, "rounds": rounds, "ratio": ratio, "sides": sides}
        print(json.dumps(result), flush=True)


def main(
    about: str | None,
    page: str,
    tasks: Collection[str],
    measure: Callable[[str, int, int, int], dict[str, dict[str, Any]]],
    *,
    envs: int,
    steps: int,
) -> None:
    """The command of a benchmark of one adapter: `measure(task, envs, steps, rounds)` for each task."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=tasks)
    parser.add_argument("--envs", type=int, default=envs)
    parser.add_argument("--steps", type=int, default=steps, help="of every environment in a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for task in options.task or tasks:
        sides = measure(task, options.envs, options.steps, options.rounds)
        tell(page, title(task, options.envs), options.rounds, sides, "shoal_is", options.json)
