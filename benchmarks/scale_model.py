#!/usr/bin/env python3
"""What data-parallel PPO would do on more hosts: measured costs in, predicted steps per second out, with what it waits for.

    python benchmarks/scale_model.py [--hosts 1 2 4 8 16 64 256 1024] [--ranks-per-host 1] [--rtt-us 100] [--gbit 10]
        [--step-us 200] [--num-envs 16] [--batch-size 256] [--check 1 2]

One rank is run to measure an iteration: seconds of collection, of which the environments are shared out, and of the update,
of which the gradients are; a minibatch of half the size says what of a gradient does not shrink. The model, of N ranks on H
hosts, with U minibatches an iteration and P bytes of gradient:

    T(N) = C/N * (1 + cv * sqrt(2 ln N)) + U * (fixed + rows/N) + U * A
    A    = host sum + [H > 1] * (rtt + 2 (H - 1) P / bandwidth)

C is collection, cv the spread of a rank's, A the sum over ranks: through memory on a host, by a star of TCP connections between
hosts. All ranks together have as many environments and rows as one has. `--check` then runs as many local ranks and puts what
they did beside the prediction. The closing line says what else was running.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from typing import NamedTuple

from data_parallel import Busy

import shoal


class Costs(NamedTuple):
    """Seconds of one iteration of one rank.

    Attributes:
        collect, spread: of collection; its coefficient of variation from iteration to iteration.
        rows, fixed: of one minibatch: what shrinks with its rows, and what does not.
        steps, minibatches, bytes: an iteration's, and of one gradient.
    """

    collect: float
    spread: float
    rows: float
    fixed: float
    steps: int
    minibatches: int
    bytes: int


HOST_SUM = ((1 << 10, 1.1e-6), (1 << 16, 15.9e-6), (1 << 20, 154e-6), (1 << 24, 3800e-6))
"""Bytes, and seconds of a sum of two ranks through memory (src/shoal/group/group_benchmark.cc)."""


def iterations(options: argparse.Namespace, ranks: int, batch_size: int, seconds: float) -> list[dict[str, float]]:
    """What each iteration took: "collect" and "update" seconds, and "steps" a second over all of them."""
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        trainer = shoal.learn.Trainer(
            Busy,
            nproc=ranks,
            env_kwargs={"seconds": options.step_us * 1e-6},
            num_envs=options.num_envs,
            num_steps=64,
            batch_size=batch_size,
            epochs=4,
            total_steps=10**9,
            num_workers=0,
            eval_every=0,
            eval_envs=1,
            final_episodes=0,
            save_every_seconds=1e6,
            run_dir=f"{scratch}/run",
        )
        with trainer:
            trainer.start()
            while trainer.status()["iteration"] < 2:
                trainer.wait(0.001)
            begin, first = time.perf_counter(), trainer.status()["step"]
            while time.perf_counter() < begin + seconds:
                trainer.wait(0.005)
                status = trainer.status()
                found[status["iteration"]] = {"collect": status["collect_seconds"], "update": status["update_seconds"]}
            rate = (trainer.status()["step"] - first) / (time.perf_counter() - begin)
            trainer.stop()
            trainer.wait()
    return [row | {"rate": rate} for row in found.values()]


def measured(options: argparse.Namespace) -> Costs:
    whole = iterations(options, 1, options.batch_size, options.seconds)
    half = iterations(options, 1, options.batch_size // 2, options.seconds)
    steps = options.num_envs * 64
    minibatches = 4 * max(1, round(steps / options.batch_size))
    each = statistics.median(row["update"] for row in whole) / minibatches
    each_half = statistics.median(row["update"] for row in half) / (2 * minibatches)
    fixed = max(0.0, min(each, 2 * each_half - each))
    collect = [row["collect"] for row in whole]
    network = (8 * 64 + 64 + 64 * 64 + 64) * 2 + (64 * 4 + 4) + (64 + 1)
    return Costs(
        statistics.fmean(collect),
        statistics.pstdev(collect) / statistics.fmean(collect),
        each - fixed,
        fixed,
        steps,
        minibatches,
        4 * network,
    )


def host_sum(size: int) -> float:
    """Seconds, between the measured sizes on a straight line of logarithms."""
    for (below, low), (above, high) in zip(HOST_SUM, HOST_SUM[1:], strict=False):
        if size <= above:
            share = math.log(max(size, below) / below) / math.log(above / below)
            return math.exp(math.log(low) * (1 - share) + math.log(high) * share)
    return HOST_SUM[-1][1] * size / HOST_SUM[-1][0]


def predicted(costs: Costs, hosts: int, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of an iteration by what they go to."""
    ranks = hosts * options.ranks_per_host
    straggling = 1 + costs.spread * math.sqrt(2 * math.log(ranks))
    on_host = host_sum(costs.bytes) if options.ranks_per_host > 1 else 0.0
    wire = options.rtt_us * 1e-6 + 2 * (hosts - 1) * costs.bytes / (options.gbit * 1e9 / 8) if hosts > 1 else 0.0
    return {
        "environments": costs.collect / ranks,
        "stragglers": costs.collect / ranks * (straggling - 1),
        "rows of gradients": costs.minibatches * costs.rows / ranks,
        "fixed part of gradients": costs.minibatches * costs.fixed,
        "sums on a host": costs.minibatches * on_host,
        "sums between hosts": costs.minibatches * wire,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8, 16, 64, 256, 1024])
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--rtt-us", type=float, default=100)
    parser.add_argument("--gbit", type=float, default=10)
    parser.add_argument("--step-us", type=float, default=200)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--check", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    costs = measured(options)
    print(
        f"measured on one rank: collection {costs.collect * 1e3:.1f} ms (spread {costs.spread:.1%}), {costs.minibatches} minibatches"
        f" of {(costs.rows + costs.fixed) * 1e6:.0f} us, {costs.fixed * 1e6:.0f} of them fixed, {costs.bytes / 1024:.0f} KiB"
    )
    for hosts in options.hosts:
        parts = predicted(costs, hosts, options)
        total = sum(parts.values())
        alone = costs.collect + costs.minibatches * (costs.rows + costs.fixed)
        most = max(parts, key=lambda part: parts[part])
        ranks = hosts * options.ranks_per_host
        print(
            f"  {hosts:5} hosts, {ranks:5} ranks {costs.steps / total:12,.0f} steps/s, {alone / (ranks * total):6.1%} of what"
            f" {ranks} alone would do; most goes to {most} ({parts[most] / total:.0%})"
        )
    for ranks in options.check:
        here = argparse.Namespace(**{**vars(options), "ranks_per_host": ranks})
        want = costs.steps / sum(predicted(costs, 1, here).values())
        got = iterations(options, ranks, options.batch_size, options.seconds)[0]["rate"]
        print(
            f"  check: {ranks} local ranks did {got:,.0f} steps/s where {want:,.0f} are predicted ({got / want - 1:+.1%})"
        )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main()
