"""PufferLib 3, the last with environments in Python: in this process, and in workers that poll flags in shared memory; and its
CartPole in C, of which one object steps many.

Tries one worker as well as one a CPU, since its caller polls, too. Returns views that the next step overwrites.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pufferlib.emulation
import pufferlib.vector

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping

PACKAGE = "pufferlib"


def make(task: Task, backend: type, **settings: Any) -> Any:
    make_env = task.make

    def emulated(buf: Any = None, seed: int = 0) -> pufferlib.emulation.GymnasiumPufferEnv:
        return pufferlib.emulation.GymnasiumPufferEnv(env_creator=make_env, buf=buf, seed=seed)

    count = task.num_envs
    # Not through pufferlib.vector.make, which refuses sync_traj.
    envs = backend([emulated] * count, [[]] * count, [{}] * count, count, seed=0, **settings)
    task.closing.callback(envs.close)
    return envs


def serial(task: Task) -> Measure:
    envs = make(task, pufferlib.vector.Serial)
    envs.reset(seed=0)
    return stepping(envs.step, task.num_envs)


def workers(task: Task, *more: int) -> list[int]:
    """Numbers of workers to try. Each gets as many environments as the others."""
    return sorted({n for n in (1, len(os.sched_getaffinity(0)), task.num_workers, *more) if task.num_envs % n == 0})


def sync(task: Task) -> Measure:
    def build(task: Task, num_workers: int) -> Measure:
        envs = make(task, pufferlib.vector.Multiprocessing, num_workers=num_workers, overwork=True)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs, np.int32)

    return best_of(task, [{"num_workers": count} for count in workers(task)], build)


def asynchronous(task: Task) -> Measure:
    """A batch of half the workers or a quarter: blocks of neighbours as views, or the first that are ready, copied."""

    def build(task: Task, num_workers: int, batch_size: int, zero_copy: bool) -> Measure:
        envs = make(
            task,
            pufferlib.vector.Multiprocessing,
            num_workers=num_workers,
            batch_size=batch_size,
            zero_copy=zero_copy,
            sync_traj=False,
            overwork=True,
        )
        envs.async_reset(seed=0)
        actions = random_actions(batch_size, np.int32)

        def turn() -> int:
            envs.recv()
            envs.send(next(actions))
            return batch_size

        return repeating(turn)

    candidates = [
        {"num_workers": count, "batch_size": task.num_envs // share, "zero_copy": zero_copy}
        for count in workers(task, 2 * task.num_workers)
        for share in (2, 4)
        for zero_copy in (True, False)
        if count % share == 0
    ]
    if not candidates:
        raise ValueError(f"{task.num_envs} environments cannot be shared evenly by workers that make batches of a half")
    return best_of(task, candidates, build)


# Steps after which its CartPole sums up what the episodes came to: seldom, as a trainer asks.
REPORT_EVERY = 128


def c_serial(task: Task) -> Measure:
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    envs = Cartpole(task.num_envs, report_interval=REPORT_EVERY, seed=0)
    task.closing.callback(envs.close)
    envs.reset(seed=0)
    return stepping(envs.step, task.num_envs, np.float32)


def c_sync(task: Task) -> Measure:
    """Each worker has one object, with its share of the environments."""
    from pufferlib.ocean.cartpole.cartpole import Cartpole

    def build(task: Task, num_workers: int) -> Measure:
        kwargs = {"num_envs": task.num_envs // num_workers, "report_interval": REPORT_EVERY}
        envs = pufferlib.vector.Multiprocessing(
            [Cartpole] * num_workers,
            [[]] * num_workers,
            [kwargs] * num_workers,
            num_workers,
            num_workers,
            overwork=True,
        )
        task.closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs, np.int32)

    return best_of(task, [{"num_workers": count} for count in workers(task)], build)


MODES: dict[str, Mode] = {
    "serial": serial,
    "sync": sync,
    "async": asynchronous,
    "c-serial": c_serial,
    "c-sync": c_sync,
}
