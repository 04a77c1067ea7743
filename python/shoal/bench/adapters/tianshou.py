"""Tianshou: in this process, and a process for each environment, with pickled or shared observations."""

from __future__ import annotations

from functools import partial

import numpy as np
import tianshou
from tianshou.env import BaseVectorEnv, DummyVectorEnv, ShmemVectorEnv, SubprocVectorEnv

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating

PACKAGE = tianshou.__name__


def started(kind: type[BaseVectorEnv], task: Task, wait_num: int | None = None) -> Measure:
    envs = kind([task.make] * task.num_envs, wait_num=wait_num)
    task.closing.callback(envs.close)
    envs.seed(0)  # environment i gets i; reset(seed=0) would give all of them 0
    envs.reset()
    actions = random_actions(task.num_envs)
    ready = np.arange(task.num_envs)

    # Those that ended are reset here: that is left to the caller.

    def together() -> int:
        _, _, terminated, truncated, _ = envs.step(next(actions))
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            envs.reset(ended)
        return task.num_envs

    def those_ready() -> int:
        nonlocal ready
        _, _, terminated, truncated, infos = envs.step(next(actions)[: len(ready)], ready)
        ready = np.array([info["env_id"] for info in infos])
        ended = ready[terminated | truncated]
        if len(ended):
            envs.reset(ended)
        return len(ready)

    return repeating(together if wait_num is None else those_ready)


def asynchronous(task: Task) -> Measure:
    def build(task: Task, wait_num: int) -> Measure:
        return started(ShmemVectorEnv, task, wait_num)

    return best_of(task, [{"wait_num": size} for size in task.batch_sizes], build)


MODES: dict[str, Mode] = {
    "dummy": partial(started, DummyVectorEnv),
    "subproc": partial(started, SubprocVectorEnv),
    "shmem": partial(started, ShmemVectorEnv),
    "async": asynchronous,
}
