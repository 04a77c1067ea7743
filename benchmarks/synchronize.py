#!/usr/bin/env python3
"""Locks and their kin beside CPython's: uncontended, and with two processes at it. Median of `--repeats` interleaved runs.

.venv/bin/python benchmarks/synchronize.py
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from shoal.multiprocessing import synchronize as ours


def uncontended(lock: Any, turns: int) -> float:
    start = time.perf_counter()
    for _ in range(turns):
        lock.acquire()
        lock.release()
    return (time.perf_counter() - start) / turns


def with_block(lock: Any, turns: int) -> float:
    start = time.perf_counter()
    for _ in range(turns):
        with lock:
            pass
    return (time.perf_counter() - start) / turns


def contended(lock: Any, turns: int) -> float:
    """Two processes take turns as they can: seconds for each acquisition of either."""
    started = time.perf_counter()
    pid = os.fork()
    for _ in range(turns):
        with lock:
            pass
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return (time.perf_counter() - started) / (2 * turns)


def handover(pair: tuple[Any, Any], turns: int) -> float:
    """Two semaphores, two processes: seconds for a round trip."""
    ping, pong = pair
    pid = os.fork()
    if pid == 0:
        for _ in range(turns):
            ping.acquire()
            pong.release()
        os._exit(0)
    start = time.perf_counter()
    for _ in range(turns):
        ping.release()
        pong.acquire()
    taken = time.perf_counter() - start
    os.waitpid(pid, 0)
    return taken / turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    cpython = multiprocessing.get_context("fork")
    rows: list[tuple[str, Callable[[Any, int], float], Any, Any, int]] = [
        ("Lock, acquire and release", uncontended, ours.Lock(), cpython.Lock(), options.turns),
        ("Lock, with", with_block, ours.Lock(), cpython.Lock(), options.turns),
        ("RLock, with", with_block, ours.RLock(), cpython.RLock(), options.turns),
        ("Semaphore(2), with", with_block, ours.Semaphore(2), cpython.Semaphore(2), options.turns),
        ("Lock, two processes", contended, ours.Lock(), cpython.Lock(), options.turns),
        ("Semaphore(1), two processes", contended, ours.Semaphore(1), cpython.Semaphore(1), options.turns),
        (
            "round trip of two Semaphores",
            handover,
            (ours.Semaphore(0), ours.Semaphore(0)),
            (cpython.Semaphore(0), cpython.Semaphore(0)),
            options.turns // 20,
        ),
    ]
    print(f"{'nanoseconds':32}{'shoal':>12}{'CPython':>12}{'ratio':>8}{'spread':>16}")
    for name, measure, mine, theirs, turns in rows:
        pairs = [(measure(mine, turns), measure(theirs, turns)) for _ in range(options.repeats)]
        ratios = sorted(other / own for own, other in pairs)
        own, other = (statistics.median(side) * 1e9 for side in zip(*pairs, strict=True))
        print(f"{name:32}{own:12.0f}{other:12.0f}{statistics.median(ratios):8.2f}{ratios[0]:8.2f}–{ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
