"""Hogwild: several processes train one network without locks.

    python examples/hogwild/main.py [--processes 4] [--steps 400] [--start-method forkserver]

`share_module` puts the parameters where all processes see them, in place; gradients stay each process's own. The images
cross once, as handles, however large they are. F. Niu, B. Recht, C. Ré, S. Wright, "Hogwild!", 2011.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import shoal.multiprocessing as mp

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory, positive


def digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of 28 × 28 in ten classes, as large as MNIST's and about as noisy."""
    shapes = torch.rand(10, 784, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return shapes[labels] + torch.randn(count, 784, generator=generator), labels


def network() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def train(index: int, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    generator = torch.Generator().manual_seed(index)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        rows = torch.randint(len(images), (32,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def work(*arguments: Any) -> None:
    torch.set_num_threads(1)  # as many processes as CPUs compute already
    train(*arguments)


def accuracy(model: torch.nn.Module) -> float:
    images, labels = digits(1000, seed=9)
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=positive, default=4)
    parser.add_argument("--steps", type=positive, default=400, help="of all processes together")
    parser.add_argument("--start-method", default="forkserver", choices=["forkserver", "spawn", "fork"])
    options = parser.parse_args()
    data = digits(2000, seed=5)
    alone, together = network(), mp.share_module(network())
    train(0, alone, *data, options.steps)
    begun = time.perf_counter()
    arguments = (together, *data, options.steps // options.processes)
    mp.set_forkserver_preload(
        ["torch._dynamo"]
    )  # which optimisers import when they first step: once, for all processes
    context = mp.start_processes(work, arguments, options.processes, join=False, start_method=options.start_method)
    weight = 0
    while not context.join(0.02):
        weight = max(weight, sum(map(memory, context.pids())))
    seconds = time.perf_counter() - begun
    print(f"accuracy of one process {accuracy(alone):.2f}, of {options.processes} processes {accuracy(together):.2f}")
    print(f"{seconds:.1f} s with their start, {weight / 2**20:.0f} MiB all processes together")


if __name__ == "__main__":
    main()
