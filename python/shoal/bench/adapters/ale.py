"""ALE's own vector environment: Atari in C++ threads. Tries how many, and asynchronously which share of the environments a batch holds."""

from __future__ import annotations

import os
from typing import Any

import ale_py
from ale_py.vector_env import AtariVectorEnv

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping
from shoal.bench.workloads import PONG_FRAMES, PONG_NOOPS, PONG_SIZE, PONG_SKIP, PONG_STACK

PACKAGE = ale_py.__name__


def make(task: Task, **settings: Any) -> AtariVectorEnv:
    envs = AtariVectorEnv(
        "pong",
        task.num_envs,
        img_height=PONG_SIZE,
        img_width=PONG_SIZE,
        stack_num=PONG_STACK,
        frameskip=PONG_SKIP,
        noop_max=PONG_NOOPS,
        use_fire_reset=False,
        reward_clipping=False,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=PONG_FRAMES,
        **settings,
    )
    task.closing.callback(envs.close)
    return envs


def threads(most: int) -> list[int]:
    """1, as many as there are CPUs, and the library's own choice."""
    return sorted({0, 1, min(most, len(os.sched_getaffinity(0)))})


def sync(task: Task) -> Measure:
    def build(task: Task, num_threads: int) -> Measure:
        envs = make(task, num_threads=num_threads)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs)

    return best_of(task, [{"num_threads": count} for count in threads(task.num_envs)], build)


def asynchronous(task: Task) -> Measure:
    def build(task: Task, batch_size: int, num_threads: int) -> Measure:
        envs = make(task, batch_size=batch_size, num_threads=num_threads)
        envs.reset(seed=0)  # of all, and returns the first batch
        actions = random_actions(batch_size)

        def turn() -> int:
            envs.send(next(actions))  # to those that were received last
            envs.recv()
            return batch_size

        return repeating(turn)

    candidates = [{"batch_size": batch, "num_threads": count} for batch in task.batch_sizes for count in threads(batch)]
    return best_of(task, candidates, build)


MODES: dict[str, Mode] = {"sync": sync, "async": asynchronous}
