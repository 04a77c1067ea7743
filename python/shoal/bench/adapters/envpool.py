"""EnvPool: C++ environments in threads. Tries how many threads, and asynchronously which share of the environments a batch holds."""

from __future__ import annotations

import os

import envpool

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping

PACKAGE = "envpool"
TASKS = {"native-cartpole": "CartPole-v1"}


def threads(most: int) -> list[int]:
    """1, 2, 4 … and as many as there are CPUs, but no more than environments in a batch."""
    cpus = len(os.sched_getaffinity(0))
    return sorted({min(count, most) for count in (*(2**i for i in range(cpus.bit_length())), cpus) if count <= cpus})


def sync(task: Task) -> Measure:
    def build(task: Task, num_threads: int) -> Measure:
        envs = envpool.make_gymnasium(TASKS[task.workload], num_envs=task.num_envs, num_threads=num_threads, seed=0)
        task.closing.callback(envs.close)
        envs.reset()
        return stepping(envs.step, task.num_envs)

    return best_of(task, [{"num_threads": count} for count in threads(task.num_envs)], build)


def asynchronous(task: Task) -> Measure:
    def build(task: Task, batch_size: int, num_threads: int) -> Measure:
        envs = envpool.make_gymnasium(
            TASKS[task.workload],
            num_envs=task.num_envs,
            batch_size=batch_size,
            num_threads=num_threads,
            seed=0,
        )
        task.closing.callback(envs.close)
        envs.async_reset()
        actions = random_actions(batch_size)

        def turn() -> int:
            info = envs.recv()[-1]
            envs.send(next(actions), info["env_id"])
            return batch_size

        return repeating(turn)

    candidates = [{"batch_size": batch, "num_threads": count} for batch in task.batch_sizes for count in threads(batch)]
    return best_of(task, candidates, build)


MODES: dict[str, Mode] = {"sync": sync, "async": asynchronous}
