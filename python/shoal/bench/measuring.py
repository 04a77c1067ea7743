"""What adapters are made of: the task, actions, and windows of stepping. Needs NumPy only."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import numpy as np

from shoal.bench.workloads import WORKLOADS

__all__ = ["Measure", "Mode", "Task", "best_of", "random_actions", "repeating", "stepping"]

TRIALS = 3  # windows of each of the settings that are tried

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


def random_actions(num_envs: int, dtype: Any = np.int64) -> Iterator[np.ndarray]:
    """Arrays of 0s and 1s, shape (num_envs,), without end. `dtype`: the one that the library need not convert."""
    random = np.random.default_rng(0)
    return cycle([random.integers(0, 2, num_envs).astype(dtype) for _ in range(64)])


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


def stepping(step: Callable[[np.ndarray], Any], num_envs: int, dtype: Any = np.int64) -> Measure:
    """Steps all environments at once, with random actions."""
    actions = random_actions(num_envs, dtype)

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
    """Tries each of the settings in several short windows and stays with the one whose median is the highest.

    Settings that the library fails with are left out, unless it fails with all of them.

    `build(task, **settings)` enters what ends it into `task.closing`, which during trials is another one.
    """
    best, rate = candidates[0], None
    failure: Exception | None = None
    for settings in candidates if len(candidates) > 1 else ():
        try:
            found = _tried(task, settings, build, seconds)
        except Exception as error:
            failure = failure or error
            continue
        if rate is None or found > rate:
            best, rate = settings, found
    if failure is not None and rate is None:
        raise failure
    task.settings.update(best)
    return build(task, **best)


def _tried(task: Task, settings: Mapping[str, Any], build: Callable[..., Measure], seconds: float) -> float:
    with ExitStack() as closing:
        measure = build(Task(**{**vars(task), "closing": closing}), **settings)
        measure(seconds / 3)
        windows = [measure(seconds) for _ in range(TRIALS)]
    return statistics.median(steps / elapsed for steps, elapsed in windows)
