"""Steps per second of send() and recv() beside those of step(), alternating in one run.

    python benchmarks/async_steps.py                  # all tables; --seconds 2 --rounds 5
    python benchmarks/async_steps.py sleeping noop native

sleeping: environments whose steps sleep for an exponential time of 1 ms in the mean, 8 of them in 8 workers.
noop: what a worker costs beyond the environment's step; batches of half the environments.
native: shoal/CartPole-v1 on threads, and EnvPool's asynchronous mode where it is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np

import shoal
from shoal.bench.workloads import NoopEnv


class SleepingEnv(NoopEnv):
    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng()

    def step(self, action: int) -> Any:
        time.sleep(self._random.exponential(1e-3))
        return super().step(action)


Measure = Callable[[float], float]


def stepping(envs: gymnasium.vector.VectorEnv) -> Measure:
    envs.reset(seed=0)
    actions = np.zeros(envs.num_envs, np.int64)

    def measure(seconds: float) -> float:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            envs.step(actions)
            calls += 1
        return calls * envs.num_envs / (time.perf_counter() - begin)

    return measure


def receiving(envs: Any, batch_size: int | None = None) -> Measure:
    """Of ours and EnvPool's, which are called alike; only ours know their batch_size."""
    envs.async_reset()
    rows = batch_size or envs.batch_size
    actions = np.zeros(rows, np.int64)

    def measure(seconds: float) -> float:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            infos = envs.recv()[4]
            envs.send(actions, infos["env_id"])
            calls += 1
        return calls * rows / (time.perf_counter() - begin)

    return measure


def envpool_async(num_envs: int, batch_size: int, closing: ExitStack) -> Measure | None:
    try:
        import envpool
    except ImportError:
        return None
    envs = envpool.make_gymnasium("CartPole-v1", num_envs=num_envs, batch_size=batch_size, num_threads=2)
    closing.callback(envs.close)
    return receiving(envs, batch_size)


def compare(title: str, contestants: dict[str, Measure | None], seconds: float, rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name, measure in contestants.items() if measure}
    for _ in range(rounds):
        for name, measure in contestants.items():
            if measure:
                rates[name].append(measure(seconds))
    first = statistics.median(next(iter(rates.values())))
    print(title)
    for name, values in rates.items():
        median = statistics.median(values)
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        print(f"  {name:34s} {median:12,.0f}/s   {median / first:5.2f}x   ({spread})   {1e6 / median:7.3f} µs a step")


def sleeping(seconds: float, rounds: int) -> None:
    with ExitStack() as closing:
        sync = shoal.make_vec(SleepingEnv, 8, num_workers=8)
        parts = {b: shoal.make_vec(SleepingEnv, 8, num_workers=8, batch_size=b) for b in (4, 2, 1)}
        cohorts = shoal.make_vec(SleepingEnv, 8, num_workers=8, cohorts=2)
        for envs in (sync, cohorts, *parts.values()):
            closing.callback(envs.close)
        contestants = {"step()": stepping(sync), "cohorts=2": receiving(cohorts)}
        contestants |= {f"batch_size={b}": receiving(envs) for b, envs in parts.items()}
        compare("8 environments, steps sleep 1 ms in the mean, exponential", contestants, seconds, rounds)


def noop(seconds: float, rounds: int) -> None:
    for n in (8, 64, 256):
        with ExitStack() as closing:
            sync = shoal.make_vec(NoopEnv, n, num_workers=2)
            half = shoal.make_vec(NoopEnv, n, num_workers=2, batch_size=n // 2)
            cohorts = shoal.make_vec(NoopEnv, n, num_workers=2, cohorts=2)
            for envs in (sync, half, cohorts):
                closing.callback(envs.close)
            contestants = {
                "step()": stepping(sync),
                f"batch_size={n // 2}": receiving(half),
                "cohorts=2": receiving(cohorts),
            }
            compare(f"{n} Python environments that do nothing, 2 workers", contestants, seconds, rounds)


def native(seconds: float, rounds: int) -> None:
    for n in (8, 64, 256, 1024):
        with ExitStack() as closing:
            sync = shoal.make_vec("shoal/CartPole-v1", n, num_workers=2)
            half = shoal.make_vec("shoal/CartPole-v1", n, num_workers=2, batch_size=n // 2)
            cohorts = shoal.make_vec("shoal/CartPole-v1", n, num_workers=2, cohorts=2)
            for envs in (sync, half, cohorts):
                closing.callback(envs.close)
            contestants = {
                "step()": stepping(sync),
                f"batch_size={n // 2}": receiving(half),
                "cohorts=2": receiving(cohorts),
                f"EnvPool, batch_size={n // 2}": envpool_async(n, n // 2, closing),
            }
            compare(f"{n} native CartPole, 2 threads", contestants, seconds, rounds)


TABLES = {"sleeping": sleeping, "noop": noop, "native": native}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(TABLES)} (default: all)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (default: 5)")
    arguments = parser.parse_args()
    unknown = [table for table in arguments.tables if table not in TABLES]
    if unknown:
        parser.error(f"there is no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    for table in arguments.tables or TABLES:
        TABLES[table](arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
