"""TorchRL's InferenceServer with its multiprocessing transport: many client processes ask an echo.

Run by benchmarks/serve.py with the peers' interpreter; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.modules.inference_server import InferenceServer, MPTransport


def ask(client: Any, numbers: int, seconds: float, barrier: Any, results: Any) -> None:
    torch.set_num_threads(1)
    row = TensorDict({"obs": torch.zeros(numbers)})
    for _ in range(3):
        client(row)
    barrier.wait()
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        client(row)
        times.append(time.perf_counter() - start)
    results.put(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--numbers", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    transport = MPTransport(context)
    barrier, results = context.Barrier(arguments.clients), context.Queue()
    processes = [
        context.Process(
            target=ask, args=(transport.client(), arguments.numbers, arguments.seconds, barrier, results), daemon=True
        )
        for _ in range(arguments.clients)
    ]
    for process in processes:
        process.start()
    with InferenceServer(lambda rows: rows, transport, max_batch_size=64):
        times = sorted(sum((results.get() for _ in processes), []))
        for process in processes:
            process.join()
    print(
        json.dumps(
            {
                "per_second": len(times) / arguments.seconds,
                "p50": times[len(times) // 2],
                "p99": times[len(times) * 99 // 100],
            }
        )
    )


if __name__ == "__main__":
    main()
