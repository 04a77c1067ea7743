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
from measuring import descendants, memory_of_tree


def policy(observations: np.ndarray) -> np.ndarray:
    synchronize()  # the collector makes tensors of what it got
    return (observations[:, 0] > 0).astype(np.int64)


def main(options: argparse.Namespace) -> None:
    begun = time.perf_counter()
    print(f"{options.collectors} collectors of {options.envs} environments", flush=True)
    with shoal.Collector(
        World,
        policy,
        num_envs=options.collectors * options.envs,
        mode="multi_async",
        num_collectors=options.collectors,
        frames_per_batch=options.frames // options.collectors,
        total_frames=options.frames,
        seed=0,
    ) as collector:
        frames, pids, weight = 0, set(), 0
        for batch in collector:
            frames += int(batch["valid"].sum())
            if not pids:  # all of them have made their environments
                pids, weight = set(descendants()), memory_of_tree()
        seconds = time.perf_counter() - begun
        print(f"{frames} frames in {seconds:.1f} s with the start, {weight / 2**20:.0f} MiB in {len(pids)} processes")
        print(f"{held_mib(sorted(pids))} MiB of the GPU are held")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectors", type=int, default=8)
    parser.add_argument("--envs", type=int, default=8, help="of each collector")
    parser.add_argument("--frames", type=int, default=2048, help="of all collectors together")
    parser.add_argument("--stand-in", metavar="MIB", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.stand_in:
            stand_in(Path(folder), options.stand_in)
        main(options)
