"""Shoal, with its defaults; asynchronously it tries how many environments a batch holds."""

from __future__ import annotations

from typing import Any

import shoal
from shoal.atari import AtariPreprocessing
from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping
from shoal.bench.workloads import PONG_FRAMES, PONG_NOOPS, PONG_SIZE, PONG_SKIP, PONG_STACK, WORKLOADS

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


def atari(**where: Any) -> Mode:
    """Pong in Shoal's own environment instead of wrappers."""

    def build(task: Task) -> Measure:
        how = AtariPreprocessing.like(
            "gymnasium", noop_max=PONG_NOOPS, frame_skip=PONG_SKIP, screen_size=PONG_SIZE, frame_stack=PONG_STACK
        )
        game = {"repeat_action_probability": 0.0, "max_num_frames_per_episode": PONG_FRAMES}
        envs = shoal.make_vec("ALE/Pong-v5", num_envs=task.num_envs, atari=how, env_kwargs=game, **where)
        task.closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task.num_envs)

    return build


MODES: dict[str, Mode] = {
    "auto": auto,
    "process": vector("process"),
    "process-lent": vector("process", copy=False),
    "async": asynchronous("process"),
    "serial": vector("serial"),
    "atari": atari(),
    "atari-serial": atari(num_workers=0),
    "native": vector("thread"),
    "native-lent": vector("thread", copy=False),
    "native-serial": vector("serial"),
    "native-async": asynchronous("thread"),
}
