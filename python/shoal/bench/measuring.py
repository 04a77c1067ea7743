"""What adapters are made of: the task, actions, and windows of stepping. Needs NumPy only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import numpy as np

from shoal.bench.workloads import WORKLOADS

__all__ = ["Measure", "Mode", "Task", "best_of", "random_actions", "repeating", "stepping"]

# Steps for about so many seconds; returns how many steps of single environments were made, and in how many seconds.
Measure = Callable[[float], tuple[int, float]]


@dataclass
class Task:
    """What a contestant is asked to build. It adds what it chose to `settings`, and what ends it to `closing`."""

    mode: str
    workload: str
    num_envs: int
    num_workers: int
    closing: ExitStack
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def make(self) -> Callable[[], Any]:
        """Builds one environment."""
        make = WORKLOADS[self.workload].make
        assert make is not None, f"{self.workload} has no environment in Python"
        return make

    @property
    def batch_sizes(self) -> list[int]:
        """How many environments a batch may hold in asynchronous modes: a half of them, or a quarter."""
        return sorted({max(1, self.num_envs // share) for share in (2, 4)})


Mode = Callable[[Task], Measure]


def random_actions(num_envs: int) -> Iterator[np.ndarray]:
    """Arrays of 0s and 1s, shape (num_envs,), int64, without end."""
    random = np.random.default_rng(0)
    return cycle([random.integers(0, 2, num_envs) for _ in range(64)])


def repeating(turn: Callable[[], int]) -> Measure:
    """Calls `turn`, which returns how many environments it stepped.

    A twentieth of the window passes before the clock starts: who slept is awake by then, and what asynchronous workers
    made while nobody asked for it is used up.
    """

    def count(seconds: float) -> tuple[int, float]:
        steps = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            steps += turn()
            now = time.perf_counter()
        return steps, now - begin

    def measure(seconds: float) -> tuple[int, float]:
        count(seconds / 20)
        return count(seconds)

    return measure


def stepping(step: Callable[[np.ndarray], Any], num_envs: int) -> Measure:
    """Steps all environments at once, with random actions."""
    actions = random_actions(num_envs)

    def turn() -> int:
        step(next(actions))
        return num_envs

    return repeating(turn)


def best_of(
    task: Task,
    candidates: Sequence[Mapping[str, Any]],
    build: Callable[..., Measure],
    seconds: float = 0.3,
) -> Measure:
    """Tries each of the settings for a short while and stays with the fastest.

    `build(task, **settings)` enters what ends it into `task.closing`, which during trials is another one.
    """
    found = []
    for settings in candidates if len(candidates) > 1 else ():
        with ExitStack() as closing:
            measure = build(Task(**{**vars(task), "closing": closing}), **settings)
            measure(seconds / 3)
            steps, elapsed = measure(seconds)
            found.append(steps / elapsed)
    best = candidates[found.index(max(found)) if found else 0]
    task.settings.update(best)
    return build(task, **best)
