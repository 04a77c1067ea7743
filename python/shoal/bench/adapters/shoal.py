"""Shoal, with its defaults; asynchronously it tries how many environments a batch holds."""

from __future__ import annotations

import shoal
from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping
from shoal.bench.workloads import WORKLOADS

PACKAGE = "shoal"


def auto(task: Task) -> Measure:
    """As it comes: backend and number of workers are its choice."""
    envs = shoal.make_vec(task.make, num_envs=task.num_envs)
    task.closing.callback(envs.close)
    envs.reset(seed=0)
    return stepping(envs.step, task.num_envs)


def vector(backend: str, copy: bool = True) -> Mode:
    def build(task: Task) -> Measure:
        envs = shoal.make_vec(
            WORKLOADS[task.workload].native_id or task.make,
            num_envs=task.num_envs,
            num_workers=0 if backend == "serial" else task.num_workers,
            backend=backend,
            copy=copy,
        )
        task.closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs)

    return build


def asynchronous(backend: str) -> Mode:
    def build(task: Task, batch_size: int) -> Measure:
        envs = shoal.make_vec(
            WORKLOADS[task.workload].native_id or task.make,
            num_envs=task.num_envs,
            num_workers=task.num_workers,
            backend=backend,
            batch_size=batch_size,
        )
        task.closing.callback(envs.close)
        envs.async_reset(seed=0)
        actions = random_actions(batch_size)

        def turn() -> int:
            infos = envs.recv()[-1]
            envs.send(next(actions), infos["env_id"])
            return batch_size

        return repeating(turn)

    return lambda task: best_of(task, [{"batch_size": size} for size in task.batch_sizes], build)


MODES: dict[str, Mode] = {
    "auto": auto,
    "process": vector("process"),
    "process-lent": vector("process", copy=False),
    "async": asynchronous("process"),
    "serial": vector("serial"),
    "native": vector("thread"),
    "native-lent": vector("thread", copy=False),
    "native-serial": vector("serial"),
    "native-async": asynchronous("thread"),
}
