#!/usr/bin/env python3
"""How long 64 workers with one CartPole-v1 each take to stand ready, and what they weigh.

    python benchmarks/start_workers.py [--workers 64] [--rounds 3] [--torch] [--kinds shoal forkserver spawn]

Compares Shoal's worker start (`make_vec` and the first reset) with CPython's `forkserver`, given the same modules to preload, and
`spawn`. Each measurement is a fresh process, the server that the workers are forked from included; the kinds alternate. The
weight is the proportional set size (PSS: shared pages are divided among those who share them) of the workers alone. With
--torch the environment's module imports torch, too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fresh_programs import alternate

KINDS = ("shoal", "forkserver", "spawn")
CARTPOLE = "gymnasium.envs.classic_control.cartpole"


def modules(with_torch: bool) -> list[str]:
    """What an environment's module brings along: preloaded by Shoal and forkserver, imported in each worker by spawn."""
    return ["numpy", "gymnasium", CARTPOLE, *(["torch"] if with_torch else [])]


class CartPole:
    """A factory that needs the modules above, picklable by every start method."""

    def __init__(self, with_torch: bool) -> None:
        self._with_torch = with_torch

    def __call__(self) -> Any:
        for name in modules(self._with_torch):
            importlib.import_module(name)
        import gymnasium

        return gymnasium.make("CartPole-v1")


def pss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss of process {pid}")


def start_shoal(count: int, with_torch: bool) -> tuple[float, list[int], Callable[[], None]]:
    begin = time.perf_counter()
    import shoal

    worker = shoal.WorkerOptions(preload=modules(with_torch))
    envs = shoal.make_vec(
        CartPole(with_torch), num_envs=count, num_workers=count, backend="process", context="forkserver", worker=worker
    )
    envs.reset(seed=0)
    seconds = time.perf_counter() - begin
    pids = [pid for pid in descendants(os.getpid()) if not children(pid)]
    return seconds, pids, envs.close


def children(pid: int) -> list[int]:
    """Child processes, whichever of its threads started them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def serve(make: CartPole, pipe: Any) -> None:
    env = make()
    env.reset(seed=0)
    pipe.send(True)
    pipe.recv()


def start_multiprocessing(kind: str, count: int, with_torch: bool) -> tuple[float, list[int], Callable[[], None]]:
    begin = time.perf_counter()
    context = multiprocessing.get_context(kind)
    if kind == "forkserver":
        context.set_forkserver_preload(modules(with_torch))
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(CartPole(with_torch), theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    seconds = time.perf_counter() - begin

    def close() -> None:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(None)
            process.join()

    return seconds, [process.pid for process in processes], close


def measure_here(kind: str, count: int, with_torch: bool) -> None:
    start = start_shoal if kind == "shoal" else lambda n, t: start_multiprocessing(kind, n, t)
    seconds, pids, close = start(count, with_torch)
    if len(pids) != count:
        raise RuntimeError(f"{len(pids)} workers found, {count} started")
    weights = [pss_bytes(pid) for pid in pids]
    close()
    print(json.dumps({"seconds": seconds, "pss_each": statistics.mean(weights), "pss_sum": sum(weights)}))


def compare(options: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kinds}
    arguments = ["--workers", str(options.workers), *(["--torch"] if options.torch else [])]
    for number, kind, figures in alternate(__file__, options.kinds, options.rounds, arguments):
        found[kind].append(figures)
        print(f"round {number + 1}: {kind} {figures['seconds']:.2f} s", file=sys.stderr, flush=True)
    what = f"{options.workers} workers, one CartPole-v1 each{', torch imported' if options.torch else ''}"
    print(f"{what}; median (least - most) of {options.rounds}")
    for kind, rows in found.items():
        times = [row["seconds"] for row in rows]
        line = f"  {kind:<11}{statistics.median(times):8.2f} s ({min(times):.2f} - {max(times):.2f})"
        line += f"   PSS {statistics.median(row['pss_each'] for row in rows) / 2**20:6.1f} MiB a worker"
        line += f", {statistics.median(row['pss_sum'] for row in rows) / 2**20:7.0f} MiB together"
        if kind != "shoal" and "shoal" in found:
            ratios = [row["seconds"] / mine["seconds"] for row, mine in zip(rows, found["shoal"], strict=True)]
            line += f"   shoal is {statistics.median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f}) times as fast"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch", action="store_true", help="the environment's module imports torch")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_here(options.measure, options.workers, options.torch)
    else:
        compare(options)


if __name__ == "__main__":
    main()
