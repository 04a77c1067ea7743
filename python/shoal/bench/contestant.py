"""One contestant in a process of its own: builds a vector environment, then steps it for as long as it is told.

Run by path with the interpreter of the contestant, which may have no Shoal. The first line of stdin is the task as JSON
(kind, workload, num_envs, num_workers); each further line is a number of seconds to step for. Every line is answered by one
of stdout: {"versions": …}, then {"steps": …, "seconds": …}. End of input ends the process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from typing import Any

import numpy as np

try:
    from shoal.bench.workloads import NATIVE_IDS, WORKLOADS
except ImportError:
    from workloads import NATIVE_IDS, WORKLOADS  # a peer's interpreter: this file's folder is on sys.path

Measure = Callable[[float], tuple[int, float]]


def random_actions(num_envs: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(0)
    return cycle([random.integers(0, 2, num_envs) for _ in range(64)])


def stepping(step: Callable[[np.ndarray], Any], num_envs: int) -> Measure:
    actions = random_actions(num_envs)

    def measure(seconds: float) -> tuple[int, float]:
        calls = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            step(next(actions))
            calls += 1
            now = time.perf_counter()
        return calls * num_envs, now - begin

    return measure


def shoal_vector(backend: str) -> Callable[..., Measure]:
    def build(task: dict[str, Any], closing: ExitStack) -> Measure:
        import shoal

        native = backend == "thread"
        envs = shoal.make_vec(
            NATIVE_IDS[task["workload"]] if native else WORKLOADS[task["workload"]],
            num_envs=task["num_envs"],
            num_workers=0 if backend == "serial" else task["num_workers"],
            backend=backend,
        )
        closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task["num_envs"])

    return build


def gymnasium_vector(kind: str) -> Callable[..., Measure]:
    def build(task: dict[str, Any], closing: ExitStack) -> Measure:
        import gymnasium

        vector = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}[kind]
        envs = vector([WORKLOADS[task["workload"]]] * task["num_envs"])
        closing.callback(envs.close)
        envs.reset(seed=0)
        return stepping(envs.step, task["num_envs"])

    return build


def sb3_vector(kind: str) -> Callable[..., Measure]:
    def build(task: dict[str, Any], closing: ExitStack) -> Measure:
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        makers = [WORKLOADS[task["workload"]]] * task["num_envs"]
        # How its processes start does not change how they step, and fork starts 64 of them without importing torch 64 times.
        envs = DummyVecEnv(makers) if kind == "dummy" else SubprocVecEnv(makers, start_method="fork")
        closing.callback(envs.close)
        envs.seed(0)
        envs.reset()
        return stepping(envs.step, task["num_envs"])

    return build


def plain_loop(workload: str, num_envs: int, pipe: Any) -> None:
    """Steps environments one after the other with nothing around them, in a process that talks to nobody meanwhile."""
    envs = [WORKLOADS[workload]() for _ in range(num_envs)]
    actions = cycle([row.tolist() for _, row in zip(range(64), random_actions(num_envs), strict=False)])
    for i, env in enumerate(envs):
        env.reset(seed=i)
    while (seconds := pipe.recv()) is not None:
        steps = 0
        begin = now = time.perf_counter()
        while now - begin < seconds:
            for env, action in zip(envs, next(actions), strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            steps += num_envs
            now = time.perf_counter()
        pipe.send((steps, now - begin))


def plain_loops(task: dict[str, Any], closing: ExitStack) -> Measure:
    """Independent processes that share nothing: the most that any engine could reach with so many workers."""
    context = multiprocessing.get_context("fork")
    pipes = []
    for index in range(task["num_workers"]):
        share = len(range(index, task["num_envs"], task["num_workers"]))
        ours, theirs = context.Pipe()
        process = context.Process(target=plain_loop, args=(task["workload"], share, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        closing.callback(process.join, 10)
        closing.callback(ours.send, None)

    def measure(seconds: float) -> tuple[int, float]:
        for pipe in pipes:
            pipe.send(seconds)
        counts = [pipe.recv() for pipe in pipes]
        # The processes' own rates add up; their clocks stop at slightly different moments.
        rate = sum(steps / elapsed for steps, elapsed in counts)
        longest = max(elapsed for _, elapsed in counts)
        return round(rate * longest), longest

    return measure


KINDS: dict[str, Callable[[dict[str, Any], ExitStack], Measure]] = {
    "shoal-process": shoal_vector("process"),
    "shoal-serial": shoal_vector("serial"),
    "shoal-native": shoal_vector("thread"),
    "gymnasium-sync": gymnasium_vector("sync"),
    "gymnasium-async": gymnasium_vector("async"),
    "sb3-dummy": sb3_vector("dummy"),
    "sb3-subproc": sb3_vector("subproc"),
    "plain-loops": plain_loops,
}


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("shoal", "gymnasium", "numpy", "stable_baselines3"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = version
    return found


def main() -> None:
    # What environments print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    task = json.loads(sys.stdin.readline())
    with ExitStack() as closing:
        measure = KINDS[task["kind"]](task, closing)
        print(json.dumps({"versions": versions()}), file=answers)
        for line in sys.stdin:
            steps, seconds = measure(float(line))
            print(json.dumps({"steps": steps, "seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
