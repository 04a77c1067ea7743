"""Many collectors on the CPU of a machine with a GPU, and no process of theirs holds memory of it.

    python examples/many_collectors/main.py [--collectors 8] [--envs 8] [--frames 2048] [--stand-in MIB]

original.py is what failed. Workers see no GPU unless they are given one, and one that opens it all the same is an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from device import held_mib, stand_in, synchronize
from world import World

import shoal

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descendants, memory_of_tree, positive


def policy(observations: np.ndarray) -> np.ndarray:
    synchronize()  # the collector makes tensors of what it got
    return (observations[:, 0] > 0).astype(np.int64)


def main(options: argparse.Namespace) -> None:
    begun = time.perf_counter()
    print(f"{options.collectors} collectors of {options.envs} environments", flush=True)
    rows = 4 * options.collectors * options.envs  # four of each environment are a batch
    with shoal.Collector(
        World,
        policy,
        num_envs=options.collectors * options.envs,
        mode="multi_async",
        num_collectors=options.collectors,
        frames_per_batch=rows,
        total_frames=-(-options.frames // rows) * rows,
        seed=0,
        worker=shoal.WorkerOptions(preload=[] if options.stand_in else ["torch"]),  # what synchronises there
    ) as collector:
        frames, weight = 0, 0
        pids: set[int] = set()
        for batch in collector:
            frames += int(batch["valid"].sum())
            if not pids:  # all of them have made their environments
                pids, weight = set(descendants()), memory_of_tree()
        seconds = time.perf_counter() - begun
        print(f"{frames} frames in {seconds:.1f} s with the start, {weight / 2**20:.0f} MiB in {len(pids)} processes")
        print(f"{held_mib(sorted(pids))} MiB of the GPU are held")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectors", type=positive, default=8)
    parser.add_argument("--envs", type=positive, default=8, help="of each collector")
    parser.add_argument("--frames", type=positive, default=2048, help="of all collectors together")
    parser.add_argument("--stand-in", metavar="MIB", type=positive)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.stand_in:
            stand_in(Path(folder), options.stand_in)
        main(options)
