"""Stable-Baselines3: in this process, and a process and a pipe for each environment."""

from __future__ import annotations

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from shoal.bench.measuring import Measure, Mode, Task, stepping

PACKAGE = "stable_baselines3"


def started(envs: VecEnv, task: Task) -> Measure:
    task.closing.callback(envs.close)
    envs.seed(0)
    envs.reset()
    return stepping(envs.step, task.num_envs)


def dummy(task: Task) -> Measure:
    return started(DummyVecEnv([task.make] * task.num_envs), task)


def subproc(task: Task) -> Measure:
    # How its processes start does not change how they step, and fork starts 64 of them without importing torch 64 times.
    return started(SubprocVecEnv([task.make] * task.num_envs, start_method="fork"), task)


MODES: dict[str, Mode] = {"dummy": dummy, "subproc": subproc}
