"""Actors fill buffers that a learner has read, and send them back: tensors go round through two queues, and none is copied.

    python examples/hogwild/buffers.py [--actors 2] [--batches 200] [--theirs]

The pattern of TorchBeast's and of torch's own advice ("reuse buffers passed through a queue"): who has a buffer owns it until it
puts it into the other queue, so that nobody overwrites what is still to be read. `--theirs` runs the same program with
torch.multiprocessing, to compare.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descriptors, memory_of_tree, positive

Buffer = dict[str, torch.Tensor]


def new_buffer(steps: int) -> Buffer:
    return {"pictures": torch.zeros(steps, 84, 84, dtype=torch.uint8), "rewards": torch.zeros(steps)}


def act(index: int, free: Any, full: Any) -> None:
    """Fills what is free, until it gets None."""
    count = 0
    while (buffer := free.get()) is not None:
        buffer["pictures"].fill_(count % 251)
        buffer["rewards"].fill_(count)
        full.put((index, count, buffer))
        count += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=positive, default=2)
    parser.add_argument("--buffers", type=positive, default=16)
    parser.add_argument("--steps", type=positive, default=80, help="of a buffer: pictures of 84 x 84")
    parser.add_argument("--batches", type=positive, default=200)
    parser.add_argument("--theirs", action="store_true", help="with torch.multiprocessing")
    options = parser.parse_args()
    mp = importlib.import_module("torch.multiprocessing" if options.theirs else "shoal.multiprocessing")

    begun = time.perf_counter()
    context = mp.get_context("spawn" if options.theirs else "forkserver")
    free, full = context.SimpleQueue(), context.SimpleQueue()
    actors = [context.Process(target=act, args=(i, free, full), daemon=True) for i in range(options.actors)]
    for actor in actors:
        actor.start()
    for _ in range(options.buffers):
        free.put(new_buffer(options.steps))
    full_of = [0] * options.actors
    for batch in range(options.batches):
        index, count, buffer = full.get()
        assert count == full_of[index], f"actor {index} sent {count} after {full_of[index] - 1}"
        assert buffer["pictures"][-1, 0, 0] == count % 251 and buffer["rewards"][-1] == count, "it was overwritten"
        full_of[index] += 1
        free.put(buffer)
        if batch == 0:
            print(f"first batch after {time.perf_counter() - begun:.2f} s", flush=True)
            begun = time.perf_counter()
    seconds = time.perf_counter() - begun
    print(f"{options.batches} batches, none overwritten: {1e6 * seconds / options.batches:.0f} µs each")
    print(f"{descriptors()} descriptors, {memory_of_tree() / 2**20:.0f} MiB all processes together")
    for _ in actors:
        free.put(None)
    for actor in actors:
        actor.join()


if __name__ == "__main__":
    main()
