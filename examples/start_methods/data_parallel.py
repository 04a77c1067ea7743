"""One process for each device trains one network: `init_process_group`, and a `DataLoader` with its `DistributedSampler`.

    python examples/start_methods/data_parallel.py [--processes 2] [--epochs 2] [--theirs]

With GPUs there is a process for each of them, and NCCL between them; elsewhere `--processes` on the CPU, and Gloo. Two runs on one
machine do not meet: the port is leased. `--theirs` runs the same with torch.multiprocessing, to compare.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shoal

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descendants, memory, positive


def dataset(rows: int = 2048) -> TensorDataset:
    """Inputs, what they should give, and the number of the row."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, 16, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh(), torch.arange(rows))


def train(rank: int, processes: int, port: int, epochs: int, loaders: Any, results: Any) -> None:
    """A process of the group. `loaders` is the context that starts the processes of its DataLoader."""
    torch.set_num_threads(1)
    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", rank) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if has_gpus else "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes
    )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
    parallel = DistributedDataParallel(model, device_ids=[rank] if has_gpus else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = dataset()
    sampler: DistributedSampler[Any] = DistributedSampler(data, seed=0)
    loader = DataLoader(
        data, 32, sampler=sampler, num_workers=1, multiprocessing_context=loaders, persistent_workers=True
    )
    first, last, seen = 0.0, 0.0, []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # or each epoch has the same order
        for inputs, targets, rows in loader:
            loss = torch.nn.functional.mse_loss(parallel(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            first, last = first or loss.item(), loss.item()
            if epoch == 0:
                seen += rows.tolist()
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    results.put((rank, seen, first, last, weights.numpy()))
    # Gloo's group ends with the process: freed here, it waits with the GIL for threads of its own, which may want it.
    if has_gpus:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=positive, default=2, help="where there are no GPUs")
    parser.add_argument("--epochs", type=positive, default=2)
    parser.add_argument("--theirs", action="store_true", help="with torch.multiprocessing")
    options = parser.parse_args()
    processes = torch.cuda.device_count() or options.processes
    method = "spawn" if options.theirs else "forkserver"
    mp = importlib.import_module("torch.multiprocessing" if options.theirs else "shoal.multiprocessing")
    if not options.theirs:
        mp.set_forkserver_preload(["torch._dynamo", "torch.distributed"])

    begun, weight = time.perf_counter(), 0
    context = mp.get_context(method)
    results = context.SimpleQueue()
    with shoal.worker().lease_port() as port:
        print(f"{processes} processes, {'NCCL' if torch.cuda.is_available() else 'Gloo'}, port {port}", flush=True)
        arguments = (processes, port, options.epochs, context, results)
        group = mp.start_processes(train, arguments, processes, join=False, start_method=method)
        while not group.join(0.1):
            weight = max(weight, sum(map(memory, descendants())))
    seconds = time.perf_counter() - begun
    _, seen, first, last, weights = zip(
        *sorted((results.get() for _ in range(processes)), key=lambda told: told[0]), strict=True
    )
    rows = [row for part in seen for row in part]
    same = all((one == weights[0]).all() for one in weights)
    print(f"rows of the first epoch: {len(rows)}, each of them once: {len(rows) == len(set(rows)) == len(dataset())}")
    print(f"loss {max(first):.3f} at first, {max(last):.3f} at last; the same weights in all processes: {same}")
    print(f"{seconds:.1f} s with their start, {weight / 2**20:.0f} MiB all of them and their loaders together")


if __name__ == "__main__":
    main()
