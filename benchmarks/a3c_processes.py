#!/usr/bin/env python3
"""A3C with more and more processes: seconds until CartPole-v1 scores, and environment steps per second.

    python benchmarks/a3c_processes.py [--processes 1 2] [--seeds 0 1 2 3 4 5 6 7 8 9] [--env CartPole-v1]
        [--envs-per-process 8] [--score 400]

Each process has as many environments, so that an update is of as many rows whichever their number: more processes make more
updates a second, which is what they are compared by. All have the settings of Shoal's preset. The score is the mean return of the
last 100 training episodes, as A3C's paper has it: evaluations, which take as long as training does here, and start-up are left
out. The numbers of processes alternate, seed by seed, and what is compared is the ratio of each seed. How many steps a seed needs
is luck for a large part, so the spread of seconds is wide; the ratio of rates says what the machine gave. The closing line says
what else was running.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import shoal


def trained(env: str, processes: int, seed: int, options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        arguments: dict[str, Any] = {
            "seed": seed,
            "num_workers": processes,
            "num_envs": processes * options.envs_per_process,
            "preset": "CartPole-v1",
            "eval_every": 0,
            "eval_envs": 1,
            "final_episodes": 0,
            "target_return": None,
            "run_dir": f"{scratch}/run",
        }
        with shoal.learn.Trainer(env, "a3c", **arguments) as trainer:
            trainer.start()
            while trainer.status()["step"] == 0 and not trainer.wait(0.001):
                pass
            begin, first = time.perf_counter(), trainer.status()["step"]
            scored = False
            while not scored and not trainer.wait(0.002):
                status = trainer.status()
                scored = status["episodes"] >= 100 and status["ep_return_mean"] >= options.score
            status = trainer.status()
            seconds = time.perf_counter() - begin
            trainer.stop()
            trainer.wait()
    return {
        "seconds": seconds,
        "steps": status["step"],
        "rate": (status["step"] - first) / seconds,
        "lag": status["policy_lag"],
        "scored": float(scored),
    }


def spread(values: list[float], form: str = ".2f") -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--env", default="CartPole-v1", help="also shoal/CartPole-v1")
    parser.add_argument("--envs-per-process", type=int, default=8)
    parser.add_argument("--score", type=float, default=400)
    options = parser.parse_args()
    found: dict[int, list[dict[str, float]]] = {processes: [] for processes in options.processes}
    for seed in options.seeds:
        for processes, rows in found.items():
            row = trained(options.env, processes, seed, options)
            rows.append(row)
            outcome = "scored" if row["scored"] else "did not score"
            print(
                f"seed {seed}, {processes} processes: {row['seconds']:.2f} s, {outcome} after {row['steps']:,.0f} steps",
                file=sys.stderr,
                flush=True,
            )
    print(f"{options.env}, mean return of at least {options.score:g} over 100 training episodes")
    first = found[options.processes[0]]
    for processes, rows in found.items():
        scored = sum(row["scored"] for row in rows)
        print(
            f"  {processes} processes: {spread([row['seconds'] for row in rows])} s, "
            f"{spread([row['rate'] for row in rows], ',.0f')} steps/s, "
            f"{statistics.median(row['steps'] for row in rows):,.0f} steps, lag {spread([row['lag'] for row in rows])} updates, "
            f"{scored:.0f} of {len(rows)} scored"
        )
        if rows is not first:
            sooner = [base["seconds"] / row["seconds"] for base, row in zip(first, rows, strict=True)]
            faster = [row["rate"] / base["rate"] for base, row in zip(first, rows, strict=True)]
            print(
                f"    beside {options.processes[0]}: scored {spread(sooner)} times as soon, rate {spread(faster)} times"
            )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main()
