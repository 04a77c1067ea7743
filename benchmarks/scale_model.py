#!/usr/bin/env python3
"""What data-parallel PPO would do on more hosts: measured costs in, predicted steps per second out, with what it waits for.

    python benchmarks/scale_model.py [--hosts 1 2 4 8 16 64 256 1024] [--ranks-per-host 1] [--scaling weak]
        [--rtt-us 100] [--gbit 10] [--step-us 200] [--num-envs 16] [--batch-size 256] [--check 1 2 4] [--rounds 3]

Measured here: an iteration of one rank, and of one with half the environments and half the minibatch, which tells what does not shrink
with them; and sums over ranks by their size, through memory and through TCP (`sums.py`). Stated: the network, by its round trip and
what a host sends. The model, of N ranks on H hosts, of an iteration with U minibatches of P bytes of gradient, and E epochs:

    T(N) = B * (C(N) * (1 + cv * sqrt(2 ln N)) + U * G(N) + rest) + U * A(P) + (E + 4) * A(64 bytes)

C is collection and G a gradient, of a rank's share; cv the spread of a rank's collection; B how many ranks of a host have one CPU.
A is the sum: on a host as measured with as many ranks, and between hosts, whichever it is that `group` does with so many bytes,

    to rank 0 and back     rtt + 2 (H - 1) (m + P / bandwidth)
    shared out             rtt + 2 (H - 1) m + 2 P (H - 1) / (H bandwidth)

where m is what a message costs. `weak`: each rank has `--num-envs` environments and `--batch-size` rows of a minibatch; `strong`: all together
have. `--check` runs as many local ranks, in turns with what is measured, and puts what they did beside the prediction (strong).
The closing line says what else was running.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

import sums
from data_parallel import EPOCHS, NUM_STEPS, trainer

SMALL = 64
"""Bytes of a sum beside the gradients': moments, counts, orders."""
SHARED_FROM = 16 * 1024
"""Bytes from which hosts share a sum out (NetworkExchange::kSharedFrom)."""
SIZES = (SMALL, 1 << 10, 1 << 14, 1 << 16, 1 << 20, 1 << 22)


class Iteration(NamedTuple):
    """Mean seconds of one iteration, and what it did."""

    collect: float
    spread: float  # coefficient of variation of collection
    update: float
    rest: float
    rate: float  # steps a second of all ranks


class Share(NamedTuple):
    """Seconds of a rank with all environments and rows, and what of it remains however few it has."""

    whole: float
    fixed: float

    def of(self, ranks: float) -> float:
        return self.fixed + (self.whole - self.fixed) / ranks


class Costs(NamedTuple):
    collect: Share
    spread: float
    gradient: Share  # of one minibatch
    rest: float
    steps: int  # of an iteration
    minibatches: int
    bytes: int  # of a gradient
    memory: Mapping[int, Mapping[int, float]]  # seconds of a sum of a host's ranks, by their number and bytes
    message: float  # of TCP, beside the round trip


def iterate(options: argparse.Namespace, ranks: int, num_envs: int, batch_size: int) -> Iteration:
    """Runs as many ranks for `options.seconds`."""
    found: dict[int, tuple[float, float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch,
        trainer(ranks, scratch, step_us=options.step_us, num_envs=num_envs, batch_size=batch_size) as training,
    ):
        training.start()

        def next_iteration() -> float:
            before = training.status()["iteration"]
            while training.status()["iteration"] == before:
                training.wait(0.0005)
            return time.perf_counter()

        next_iteration()
        begin = next_iteration()
        first = training.status()
        while (end := next_iteration()) < begin + options.seconds:
            status = training.status()
            found[status["iteration"]] = status["collect_seconds"], status["update_seconds"]
        last = training.status()
        training.stop()
        training.wait()
    seconds = (end - begin) / (last["iteration"] - first["iteration"])
    collects = [collect for collect, _ in found.values()]
    collect, update = statistics.fmean(collects), statistics.fmean(update for _, update in found.values())
    return Iteration(
        collect,
        statistics.pstdev(collects) / collect,
        update,
        max(0.0, seconds - collect - update),
        (last["step"] - first["step"]) / (end - begin),
    )


def share(whole: float, half: float) -> Share:
    return Share(whole, max(0.0, min(whole, 2 * half - whole)))


def costs_of(whole: Iteration, half: Iteration, options: argparse.Namespace, **of_sums: object) -> Costs:
    steps = options.num_envs * NUM_STEPS
    minibatches = EPOCHS * max(1, round(steps / options.batch_size))
    network = (8 * 64 + 64 + 64 * 64 + 64) * 2 + (64 * 4 + 4) + (64 + 1)
    return Costs(
        collect=share(whole.collect, half.collect),
        spread=whole.spread,
        gradient=share(whole.update / minibatches, half.update / minibatches),
        rest=whole.rest,
        steps=steps,
        minibatches=minibatches,
        bytes=4 * network,
        **of_sums,  # type: ignore[arg-type]
    )


def between(times: Mapping[int, float], size: int) -> float:
    """Seconds of a sum of so many bytes, between the measured sizes on a straight line of logarithms."""
    sizes = sorted(times)
    if size <= sizes[0]:
        return times[sizes[0]]
    for below, above in zip(sizes, sizes[1:], strict=False):
        if size <= above:
            part = math.log(size / below) / math.log(above / below)
            return math.exp(math.log(times[below]) * (1 - part) + math.log(times[above]) * part)
    return times[sizes[-1]] * size / sizes[-1]


def over_hosts(costs: Costs, hosts: int, size: int, options: argparse.Namespace) -> float:
    """Seconds of a sum between hosts."""
    if hosts == 1:
        return 0.0
    rtt, wire = options.rtt_us * 1e-6, size / (options.gbit * 1e9 / 8)
    messages = 2 * (hosts - 1) * costs.message
    if size >= SHARED_FROM:
        return rtt + messages + 2 * wire * (hosts - 1) / hosts
    return rtt + messages + 2 * (hosts - 1) * wire


def predicted(costs: Costs, hosts: int, ranks_here: int, scaling: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of an iteration by what they go to."""
    ranks = hosts * ranks_here
    parts = ranks if scaling == "strong" else 1
    busy = max(1.0, ranks_here / len(os.sched_getaffinity(0)))
    small = EPOCHS + 4 if ranks > 1 else 0
    on_host = 0.0
    if ranks_here > 1:
        memory = costs.memory[ranks_here]
        on_host = costs.minibatches * between(memory, costs.bytes) + small * memory[SMALL]
    collect = busy * costs.collect.of(parts)
    return {
        "environments": collect,
        "stragglers": collect * costs.spread * math.sqrt(2 * math.log(ranks)),
        "rows of gradients": busy * costs.minibatches * (costs.gradient.of(parts) - costs.gradient.fixed),
        "fixed part of gradients": busy * costs.minibatches * costs.gradient.fixed,
        "logs and the like": busy * costs.rest,
        "sums on a host": on_host,
        "sums between hosts": costs.minibatches * over_hosts(costs, hosts, costs.bytes, options)
        + small * over_hosts(costs, hosts, SMALL, options),
    }


def medians(rows: list[Iteration]) -> Iteration:
    return Iteration(*(statistics.median(column) for column in zip(*rows, strict=True)))


def measured(options: argparse.Namespace) -> tuple[Costs, dict[int, float]]:
    """The costs, and by number of local ranks the steps per second that they did."""
    wholes, halves = [], []
    rates: dict[int, list[float]] = {ranks: [] for ranks in options.check}
    for _ in range(options.rounds):
        wholes.append(iterate(options, 1, options.num_envs, options.batch_size))
        halves.append(iterate(options, 1, options.num_envs // 2, options.batch_size // 2))
        for ranks in options.check:
            rates[ranks].append(iterate(options, ranks, options.num_envs, options.batch_size).rate)
    memory = {
        ranks: {size: statistics.median(seconds) for size, seconds in sums.measured(ranks, SIZES)["shoal"].items()}
        for ranks in {*options.check, options.ranks_per_host} - {1}
    }
    tcp = statistics.median(sums.measured(2, [SMALL], apart=True)["shoal"][SMALL])
    costs = costs_of(medians(wholes), medians(halves), options, memory=memory, message=tcp / 4)
    return costs, {ranks: statistics.median(its) for ranks, its in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4, 8, 16, 64, 256, 1024])
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--scaling", choices=["weak", "strong"], default="weak")
    parser.add_argument("--rtt-us", type=float, default=100)
    parser.add_argument("--gbit", type=float, default=10)
    parser.add_argument("--step-us", type=float, default=200)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", type=int, nargs="*", default=[1, 2, 4])
    options = parser.parse_args()
    costs, rates = measured(options)
    print(
        f"measured on one rank: collection {1e3 * costs.collect.whole:.1f} ms (spread {costs.spread:.1%}),"
        f" {costs.minibatches} minibatches of {1e6 * costs.gradient.whole:.0f} us, {1e6 * costs.gradient.fixed:.0f} of them fixed,"
        f" {1e3 * costs.rest:.1f} ms beside; gradients of {costs.bytes / 1024:.0f} KiB"
    )
    for ranks, times in sorted(costs.memory.items()):
        row = ", ".join(f"{size:,} bytes {1e6 * seconds:,.1f}" for size, seconds in times.items())
        print(f"  sums of {ranks} ranks of this host, us: {row}")
    print(
        f"  a message by TCP {1e6 * costs.message:.1f} us; stated: {options.rtt_us:g} us there and back, {options.gbit:g} Gbit/s"
    )
    alone = costs.steps / sum(predicted(costs, 1, 1, "strong", options).values())
    print(f"predicted, {options.scaling} scaling")
    for hosts in options.hosts:
        ranks = hosts * options.ranks_per_host
        if options.scaling == "strong" and ranks > options.num_envs:
            print(f"  {hosts:5} hosts: more ranks than environments")
            continue
        parts = predicted(costs, hosts, options.ranks_per_host, options.scaling, options)
        total = sum(parts.values())
        rate = costs.steps * (ranks if options.scaling == "weak" else 1) / total
        waits = max(parts, key=lambda part: parts[part])
        over = max((part for part in parts if part != waits), key=lambda part: parts[part])
        print(
            f"  {hosts:5} hosts, {ranks:5} ranks {rate:12,.0f} steps/s, {rate / (ranks * alone):6.1%} of {ranks} times one;"
            f" most goes to {waits} ({parts[waits] / total:.0%}), then {over} ({parts[over] / total:.0%})"
        )
    for ranks, rate in rates.items():
        want = costs.steps / sum(predicted(costs, 1, ranks, "strong", options).values())
        print(
            f"  check: {ranks} local ranks did {rate:,.0f} steps/s; {want:,.0f} are predicted ({want / rate - 1:+.1%})"
        )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main()
