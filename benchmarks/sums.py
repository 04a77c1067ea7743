#!/usr/bin/env python3
"""How long a sum over ranks takes, by its size: through memory on one host, and through TCP between several.

    python benchmarks/sums.py [--ranks 2] [--hosts 1] [--gbit 1] [--sizes 1024 65536 1048576 16777216] [--rounds 5] [--gloo]

Each rank is a process. With `--hosts 1` all are on this host; with more each is a host of its own, on the loopback, or, with `--gbit`
(root), in a network namespace with an address of its own whose link carries as much. `--gloo`: beside torch.distributed's
Gloo, on the same ranks; the two alternate. Times are medians of a round, then of all rounds, with the range of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from namespaces import Namespaces

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
PORT = 29_400


def times_of(add: Callable[[np.ndarray], Any], sizes: Sequence[int]) -> dict[int, float]:
    """Median seconds of a sum of so many bytes; all ranks do as many."""
    found = {}
    for size in sizes:
        values = np.ones(max(1, size // 4), np.float32)
        taken = []
        for _ in range(int(np.clip(2e8 / max(size, 1 << 16), 8, 500))):
            values.fill(1)
            begin = time.perf_counter()
            add(values)
            taken.append(time.perf_counter() - begin)
        found[size] = statistics.median(taken)
    return found


def work(rounds: int, sizes: Sequence[int], gloo: bool) -> list[dict[str, dict[int, float]]]:
    """What a rank does, which finds the others by its environment's variables."""
    from shoal import _core

    group = _core.group.Group.join(_core.group.Launch.detect())
    sides: dict[str, Callable[[np.ndarray], Any]] = {"shoal": group.sum}
    if gloo:
        import torch

        torch.distributed.init_process_group("gloo")
        sides["gloo"] = lambda values: torch.distributed.all_reduce(torch.from_numpy(values))
    found = []
    for _ in range(rounds):
        row = {}
        for side, add in sides.items():
            group.barrier()
            row[side] = times_of(add, sizes)
        found.append(row)
    group.barrier()
    return found


def variables(rank: int, ranks: int, apart: bool, address: str, attempt: str) -> dict[str, str]:
    """By which a rank finds the others. `apart`: each is a host of its own."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0" if apart else str(rank),
        "LOCAL_WORLD_SIZE": "1" if apart else str(ranks),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(PORT),
        "SHOAL_GROUP_ATTEMPT": attempt,
        "SHOAL_GROUP_SECRET": attempt,
    }


def measured(
    ranks: int,
    sizes: Sequence[int] = SIZES,
    *,
    apart: bool = False,
    gbit: float | None = None,
    rounds: int = 1,
    gloo: bool = False,
) -> dict[str, dict[int, list[float]]]:
    """By side and bytes the seconds of each round, as rank 0 sees them.

    Args:
        apart: each rank is a host of its own.
        gbit: they are in namespaces whose links carry as much.
    """
    attempt = uuid.uuid4().hex
    told = json.dumps({"rounds": rounds, "sizes": list(sizes), "gloo": gloo})
    with ExitStack() as stack:
        hosts = stack.enter_context(Namespaces(ranks, gbit=gbit)) if gbit else None
        address = hosts.address(0) if hosts else "127.0.0.1"
        processes = []
        for rank in range(ranks):
            command = [sys.executable, __file__, "--work", told]
            own = variables(rank, ranks, apart, address, attempt)
            if hosts and gloo:
                own["GLOO_SOCKET_IFNAME"] = "net"
            processes.append(
                subprocess.Popen(
                    hosts.command(rank, command) if hosts else command,
                    env={**os.environ, **own},
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        outputs = [process.communicate()[0] for process in processes]
        for rank, process in enumerate(processes):
            if process.returncode != 0:
                raise RuntimeError(f"rank {rank} left with status {process.returncode}")
    rows: list[Mapping[str, Mapping[str, float]]] = json.loads(outputs[0].splitlines()[-1])
    return {side: {size: [row[side][str(size)] for row in rows] for size in sizes} for side in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--gbit", type=float)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gloo", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        print(json.dumps(work(**json.loads(options.work))), flush=True)
        return
    ranks = options.ranks if options.hosts == 1 else options.hosts
    apart = options.hosts > 1
    found = measured(ranks, options.sizes, apart=apart, gbit=options.gbit, rounds=options.rounds, gloo=options.gloo)
    print(
        f"{ranks} {'hosts' if apart else 'ranks of a host'}"
        + (f", {options.gbit:g} Gbit/s each" if apart and options.gbit else "")
    )
    for side, by_size in found.items():
        for size, seconds in by_size.items():
            micros = [1e6 * value for value in seconds]
            print(
                f"  {side:6} {size:12,} bytes {statistics.median(micros):12,.1f} us ({min(micros):,.1f} - {max(micros):,.1f})"
            )
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main()
