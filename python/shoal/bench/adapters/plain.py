"""Plain loops in independent processes that share nothing: the most that any engine could reach with so many workers."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from shoal.bench.measuring import Measure, Mode, Task, random_actions

PACKAGE = "gymnasium"


def loop(make: Callable[[], Any], first: int, num_envs: int, pipe: Any) -> None:
    """Steps environments one after the other with nothing around them, in a process that talks to nobody meanwhile."""
    envs = [make() for _ in range(num_envs)]
    actions = cycle([row.tolist() for _, row in zip(range(64), random_actions(num_envs), strict=False)])
    for i, env in enumerate(envs):
        env.reset(seed=first + i)
    while (seconds := pipe.recv()) is not None:
        steps = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            for env, action in zip(envs, next(actions), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += num_envs
            now = time.perf_counter()
        pipe.send((steps, now - begin))


def loops(task: Task) -> Measure:
    context = multiprocessing.get_context("fork")
    pipes = []
    first = 0
    for index in range(task.num_workers):
        share = len(range(index, task.num_envs, task.num_workers))
        ours, theirs = context.Pipe()
        process = context.Process(target=loop, args=(task.make, first, share, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        task.closing.callback(process.join, 10)
        task.closing.callback(ours.send, None)
        first += share

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
