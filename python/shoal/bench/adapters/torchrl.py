"""TorchRL: in this process, and processes that exchange tensors in shared memory. Tries how many environments a process holds."""

from __future__ import annotations

import multiprocessing
import os
from functools import partial

multiprocessing.set_start_method("fork")  # else TorchRL's import makes it spawn, and each process import torch

import torch  # noqa: E402
from torchrl.envs import AsyncEnvPool, EnvBase, GymWrapper, ParallelEnv, SerialEnv  # noqa: E402

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating, stepping  # noqa: E402

PACKAGE = "torchrl"

torch.set_num_threads(1)


def make(task: Task, seed: int | None = None) -> GymWrapper:
    env = GymWrapper(task.make(), categorical_action_encoding=True)
    if seed is not None:
        env.set_seed(seed)
    return env


def stepped(envs: EnvBase, task: Task) -> Measure:
    task.closing.callback(envs.close)
    envs.set_seed(0)
    state = envs.reset()
    shape = envs.batch_size

    def step(actions: object) -> None:
        nonlocal state
        state["action"] = torch.from_numpy(actions).reshape(shape)
        _, state = envs.step_and_maybe_reset(state)

    return stepping(step, task.num_envs)


def shares(task: Task) -> list[dict[str, int]]:
    """An environment a process, or as many in each as leave a process for each worker, or for each CPU."""
    processes = {task.num_envs, task.num_workers, len(os.sched_getaffinity(0))}
    return [{"envs_per_worker": task.num_envs // n} for n in sorted(processes) if task.num_envs % n == 0]


def serial(task: Task) -> Measure:
    return stepped(SerialEnv(task.num_envs, partial(make, task)), task)


def parallel(task: Task) -> Measure:
    make_env = partial(make, task)

    def build(task: Task, envs_per_worker: int) -> Measure:
        inner = make_env if envs_per_worker == 1 else partial(SerialEnv, envs_per_worker, make_env)
        workers = task.num_envs // envs_per_worker
        return stepped(ParallelEnv(workers, inner), task)

    return best_of(task, shares(task), build)


def asynchronous(task: Task) -> Measure:
    makers = [partial(make, task, seed) for seed in range(task.num_envs)]

    def build(task: Task, envs_per_worker: int, min_get: int) -> Measure:
        pool = AsyncEnvPool(makers, backend="multiprocessing", exchange="shm", envs_per_worker=envs_per_worker)
        task.closing.callback(pool.close)
        pool.async_reset_send(env_index=list(range(task.num_envs)))
        state = pool.async_reset_recv(min_get=task.num_envs)
        actions = random_actions(task.num_envs)

        def turn() -> int:
            nonlocal state
            state["action"] = torch.from_numpy(next(actions)[: len(state)])
            pool.async_step_and_maybe_reset_send(state)
            _, state = pool.async_step_and_maybe_reset_recv(min_get=min_get)
            return len(state)

        return repeating(turn)

    return best_of(task, [{**share, "min_get": size} for share in shares(task) for size in task.batch_sizes], build)


MODES: dict[str, Mode] = {"serial": serial, "parallel": parallel, "async": asynchronous}
