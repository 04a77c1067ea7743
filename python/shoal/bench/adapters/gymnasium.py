"""Gymnasium: in this process, a process and a pipe for each environment, and its own CartPole-v1 as NumPy arrays."""

from __future__ import annotations

import gymnasium

from shoal.bench.measuring import Measure, Mode, Task, stepping

PACKAGE = "gymnasium"


def vector(kind: str, copy: bool = True) -> Mode:
    def build(task: Task) -> Measure:
        classes = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}
        envs = classes[kind]([task.make] * task.num_envs, copy=copy)
        task.closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs)

    return build


def arrays(task: Task) -> Measure:
    """What `gymnasium.make_vec` gives by default: one object that steps all environments by array arithmetic."""
    envs = gymnasium.make_vec("CartPole-v1", task.num_envs, vectorization_mode="vector_entry_point")
    task.closing.callback(envs.close)
    envs.reset(seed=0)
    return stepping(envs.step, task.num_envs)


MODES: dict[str, Mode] = {
    "sync": vector("sync"),
    "sync-lent": vector("sync", copy=False),
    "async": vector("async"),
    "async-lent": vector("async", copy=False),
    "numpy": arrays,
}
