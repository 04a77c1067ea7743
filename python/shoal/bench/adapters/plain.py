"""Plain loops in independent processes that share nothing: the same environments with nothing around them.

Each process has a CPU of its own where there is one for each, all start at the same moment, and a twentieth of the window passes
before the clocks start.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from shoal.bench.measuring import Measure, Mode, Task, random_actions

PACKAGE = "gymnasium"


def loop(make: Callable[[], Any], first: int, num_envs: int, cpu: int | None, together: Any, pipe: Any) -> None:
    """Steps environments one after the other with nothing around them, in a process that talks to nobody meanwhile."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    envs = [make() for _ in range(num_envs)]
    actions = cycle([row.tolist() for _, row in zip(range(64), random_actions(num_envs), strict=False)])
    for i, env in enumerate(envs):
        env.reset(seed=first + i)

    def count(seconds: float) -> tuple[int, float]:
        steps = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            for env, action in zip(envs, next(actions), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += num_envs
            now = time.perf_counter()
        return steps, now - begin

    pipe.send(None)  # they stand
    while (seconds := pipe.recv()) is not None:
        together.wait()
        count(seconds / 20)
        pipe.send(count(seconds))


def loops(task: Task) -> Measure:
    context = multiprocessing.get_context("fork")
    together = context.Barrier(task.num_workers)
    cpus = sorted(os.sched_getaffinity(0))
    pipes = []
    first = 0
    for index in range(task.num_workers):
        share = len(range(index, task.num_envs, task.num_workers))
        ours, theirs = context.Pipe()
        cpu = cpus[index] if task.num_workers <= len(cpus) else None
        process = context.Process(target=loop, args=(task.make, first, share, cpu, together, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        task.closing.callback(process.join, 10)
        task.closing.callback(ours.send, None)
        first += share
    for pipe in pipes:
        pipe.recv()

    def measure(seconds: float) -> tuple[int, float]:
        for pipe in pipes:
            pipe.send(seconds)
        counts = [pipe.recv() for pipe in pipes]
        # The processes' own rates add up; their clocks stop at slightly different moments.
        rate = sum(steps / elapsed for steps, elapsed in counts)
        longest = max(elapsed for _, elapsed in counts)
        return round(rate * longest), longest

    return measure


MODES: dict[str, Mode] = {"loops": loops}
