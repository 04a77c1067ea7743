"""EnvPool: C++ environments in threads. Tries how many threads, and asynchronously which share of the environments a batch holds."""

from __future__ import annotations

import os
from typing import Any

import envpool
import numpy as np

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping
from shoal.bench.workloads import PONG_FRAMES, PONG_NOOPS, PONG_SIZE, PONG_SKIP, PONG_STACK

PACKAGE = "envpool"

# An episode's limit counts steps.
PONG = {
    "img_height": PONG_SIZE,
    "img_width": PONG_SIZE,
    "stack_num": PONG_STACK,
    "frame_skip": PONG_SKIP,
    "noop_max": PONG_NOOPS,
    "gray_scale": True,
    "use_fire_reset": False,
    "episodic_life": False,
    "reward_clip": False,
    "repeat_action_probability": 0.0,
    "max_episode_steps": PONG_FRAMES // PONG_SKIP,
}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {"native-cartpole": ("CartPole-v1", {}), "pong": ("Pong-v5", PONG)}


def make(task: Task, **settings: Any) -> Any:
    name, options = TASKS[task.workload]
    envs = envpool.make_gymnasium(name, num_envs=task.num_envs, seed=0, **options, **settings)
    task.closing.callback(envs.close)
    return envs


def threads(most: int) -> list[int]:
    """1, 2, 4 … and as many as there are CPUs, but no more than environments in a batch."""
    cpus = len(os.sched_getaffinity(0))
    return sorted({min(count, most) for count in (*(2**i for i in range(cpus.bit_length())), cpus) if count <= cpus})


def sync(task: Task) -> Measure:
    def build(task: Task, num_threads: int) -> Measure:
        envs = make(task, num_threads=num_threads)
        envs.reset()
        return stepping(envs.step, task.num_envs, np.int32)

    return best_of(task, [{"num_threads": count} for count in threads(task.num_envs)], build)


def asynchronous(task: Task) -> Measure:
    def build(task: Task, batch_size: int, num_threads: int) -> Measure:
        envs = make(task, batch_size=batch_size, num_threads=num_threads)
        envs.async_reset()
        actions = random_actions(batch_size, np.int32)

        def turn() -> int:
            info = envs.recv()[-1]
            envs.send(next(actions), info["env_id"])
            return batch_size

        return repeating(turn)

    candidates = [{"batch_size": batch, "num_threads": count} for batch in task.batch_sizes for count in threads(batch)]
    return best_of(task, candidates, build)


MODES: dict[str, Mode] = {"sync": sync, "async": asynchronous}
