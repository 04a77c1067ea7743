#!/usr/bin/env python3
"""Pools of worker processes: Shoal's, CPython's, concurrent.futures' and torch's.

    python benchmarks/pool.py [--workers 2] [--rounds 3] [--method fork] [--kinds shoal multiprocessing futures torch]

Measures, each kind in a fresh process and the kinds in turn, with the same start method for all:

  start     seconds from nothing to the first result of each worker
  call      microseconds of one apply() after the other
  tasks     tasks a second of a map of 20,000 that do nothing, each a task of its own (chunksize=1)
  chunked   items a second of a map of 200,000 with the default chunks
  arrays    1 MiB float32 arrays a second, there and back

Prints the median with the least and the most, and how many times as fast Shoal is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from fresh_programs import alternate

KINDS = ("shoal", "multiprocessing", "futures", "torch")
MEASURES = {"start": "s", "call": "us", "tasks": "/s", "chunked": "/s", "arrays": "/s"}
TASKS, ITEMS, CALLS, ARRAYS = 20_000, 200_000, 1_000, 200


def nothing(x: Any) -> Any:
    return x


class Futures:
    """ProcessPoolExecutor under the names of a Pool."""

    def __init__(self, workers: int, context: Any) -> None:
        self._executor = ProcessPoolExecutor(workers, mp_context=context)
        self._workers = workers

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._executor.submit(function, *args).result()

    def map(self, function: Callable[..., Any], items: Any, chunksize: int | None = None) -> list[Any]:
        return list(self._executor.map(function, items, chunksize=chunksize or -(-len(items) // (4 * self._workers))))

    def __enter__(self) -> Futures:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()


def make(kind: str, workers: int, method: str) -> Any:
    if kind == "torch":
        import torch.multiprocessing  # its reducers

        return torch.multiprocessing.get_context(method).Pool(workers)
    context = multiprocessing.get_context(method)
    if kind == "shoal":
        from shoal.multiprocessing.pool import Pool

        return Pool(workers, context=context)
    return context.Pool(workers) if kind == "multiprocessing" else Futures(workers, context)


def measure_here(kind: str, workers: int, method: str) -> dict[str, float]:
    array: Any = np.ones(2**18, dtype=np.float32)
    if kind == "torch":
        import torch

        array = torch.ones(2**18)
    if kind == "shoal":
        import shoal.multiprocessing.pool  # noqa: F401  # the others are imported by now
    found = {}
    begin = time.perf_counter()
    with make(kind, workers, method) as pool:
        pool.map(nothing, range(workers), chunksize=1)
        found["start"] = time.perf_counter() - begin

        begin = time.perf_counter()
        for i in range(CALLS):
            pool.apply(nothing, (i,))
        found["call"] = (time.perf_counter() - begin) / CALLS * 1e6

        begin = time.perf_counter()
        pool.map(nothing, range(TASKS), chunksize=1)
        found["tasks"] = TASKS / (time.perf_counter() - begin)

        begin = time.perf_counter()
        pool.map(nothing, range(ITEMS))
        found["chunked"] = ITEMS / (time.perf_counter() - begin)

        arrays = [array.copy() if kind != "torch" else array.clone() for _ in range(ARRAYS)]
        begin = time.perf_counter()
        pool.map(nothing, arrays, chunksize=1)
        found["arrays"] = ARRAYS / (time.perf_counter() - begin)
    return found


def compare(options: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in options.kinds}
    arguments = ["--workers", str(options.workers), "--method", options.method]
    for _, kind, figures in alternate(__file__, options.kinds, options.rounds, arguments):
        found[kind].append(figures)
    print(f"{options.workers} workers, {options.method}; median (least - most) of {options.rounds}")
    for name, unit in MEASURES.items():
        print(f"{name}")
        for kind, rows in found.items():
            values = [row[name] for row in rows]
            line = f"  {kind:<16}{statistics.median(values):12,.3g} {unit:<3} ({min(values):,.3g} - {max(values):,.3g})"
            if kind != "shoal" and "shoal" in found:
                ratios = [row[name] / mine[name] for row, mine in zip(rows, found["shoal"], strict=True)]
                faster = statistics.median(ratios if unit in ("s", "us") else [1 / ratio for ratio in ratios])
                line += f"   shoal is {faster:.1f} times as fast"
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--method", default="fork", choices=["fork", "forkserver", "spawn"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_here(options.measure, options.workers, options.method)))
    else:
        compare(options)


if __name__ == "__main__":
    main()
