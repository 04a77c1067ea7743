"""What users had: eight collectors of eight environments each, all of it on the CPU, on a machine with a GPU.

    python examples/many_collectors/original.py [--collectors 8] [--envs 8] [--frames 2048] [--stand-in MIB]

Each of the 72 processes gets a CUDA context of some 400 MiB, and the device runs out of memory (pytorch/rl#2346). `--stand-in` gives a
machine without a GPU a driver whose device has so much memory. main.py is the program that works.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import gymnasium
from device import held_mib, stand_in, synchronize
from world import World

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descendants, memory_of_tree, positive


def collect(queue: Any, end: Any, envs: int, frames: int) -> None:
    """A collector's process, which has a process for each of its environments."""
    try:
        worlds = gymnasium.vector.AsyncVectorEnv([World] * envs, context="spawn")
        worlds.reset(seed=0)
        for _ in range(frames // envs):
            worlds.step(worlds.action_space.sample())
            synchronize()  # the collector makes tensors of what it got
        queue.put(frames)
        end.wait()  # until it was looked at
        worlds.close()
    except Exception:
        queue.put(traceback.format_exc())


def main(options: argparse.Namespace) -> None:
    spawn, begun = multiprocessing.get_context("spawn"), time.perf_counter()
    queue, end = spawn.Queue(), spawn.Event()
    arguments = (queue, end, options.envs, options.frames // options.collectors)
    collectors = [spawn.Process(target=collect, args=arguments) for _ in range(options.collectors)]
    print(f"{options.collectors} collectors of {options.envs} environments", flush=True)
    try:
        for collector in collectors:
            collector.start()
        told = [queue.get() for _ in collectors]
        for error in told:
            if isinstance(error, str):
                raise SystemExit(error)
        pids, seconds = descendants(), time.perf_counter() - begun
        print(
            f"{sum(told)} frames in {seconds:.1f} s with the start, {memory_of_tree() / 2**20:.0f} MiB in {len(pids)} processes"
        )
        print(f"{held_mib(pids)} MiB of the GPU are held")
    finally:
        end.set()
        for collector in collectors:
            collector.join()


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
