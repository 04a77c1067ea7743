"""Requests per second of the model service, beside TorchRL's InferenceServer with its multiprocessing transport, in one run.

    python benchmarks/serve.py                             # 1 and 64 clients; --seconds 3 --rounds 3
    python benchmarks/serve.py --clients 16 --numbers 7056
    python benchmarks/serve.py versions --replies 1000000  # replies under 1,000 updates of the weights a second

The model is a Python function that returns its rows; each client is a process that asks about one row at a time. A ratio is of one
round's two figures. Without TorchRL's environment (benchmarks/peers/setup torchrl) Shoal runs alone. `versions` fills the
weights with their version: a reply with two numbers, or with another number than its version, would be of mixed weights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import shoal

ROOT = Path(__file__).resolve().parents[1]
TORCHRL = Path(os.environ.get("SHOAL_PEERS") or ROOT / "build/peers") / "torchrl/bin/python"
fork = multiprocessing.get_context("fork")


def echo(rows: np.ndarray) -> np.ndarray:
    return rows


class Filled:
    """Answers with its weights, which are all one number."""

    def __init__(self) -> None:
        self.weights = [np.full(1000, 1.0) for _ in range(8)]

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        for i, weights in enumerate(self.weights):
            weights[:] = state[str(i)]  # in place, one after the other: torn, if anybody looked meanwhile

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return np.repeat([[weights[-1] for weights in self.weights]], len(rows), axis=0)


def ask(model: Any, numbers: int, seconds: float, barrier: Any, results: Any) -> None:
    row = np.zeros(numbers, np.float32)
    for _ in range(3):
        model(row)
    barrier.wait()
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        model(row)
        times.append(time.perf_counter() - start)
    results.put(times)


def asked(model: Any, clients: int, numbers: int, seconds: float) -> dict[str, float]:
    """Requests per second of so many processes that ask the model, and what a request took: seconds."""
    barrier, results = fork.Barrier(clients), fork.Queue()
    arguments = (model, numbers, seconds, barrier, results)
    processes = [fork.Process(target=ask, args=arguments, daemon=True) for _ in range(clients)]
    for process in processes:
        process.start()
    times = sorted(sum((results.get() for _ in processes), []))
    for process in processes:
        process.join()
    return {
        "per_second": len(times) / seconds,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
    }


def run_shoal(clients: int, numbers: int, seconds: float) -> dict[str, float]:
    with shoal.ModelService({"echo": echo}, max_batch=64, threads=1) as service:
        return asked(service.model("echo"), clients, numbers, seconds)


def run_torchrl(clients: int, numbers: int, seconds: float) -> dict[str, float]:
    command = [str(TORCHRL), str(ROOT / "benchmarks/peers/torchrl_serve.py")]
    command += [f"--clients={clients}", f"--numbers={numbers}", f"--seconds={seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(arguments: argparse.Namespace) -> None:
    contestants = {"shoal": run_shoal}
    if TORCHRL.exists():
        contestants["torchrl"] = run_torchrl
    else:
        print(f"no {TORCHRL}: run benchmarks/peers/setup torchrl to compare")
    print("clients  contestant  requests/s      p50 µs      p99 µs")
    for clients in arguments.clients or [1, 64]:
        ratios = []
        for _ in range(arguments.rounds):
            rates = {}
            for name, run in contestants.items():
                result = run(clients, arguments.numbers, arguments.seconds)
                rates[name] = result["per_second"]
                p50, p99 = result["p50"] * 1e6, result["p99"] * 1e6
                print(f"{clients:7}  {name:10}  {result['per_second']:10,.0f}  {p50:10,.1f}  {p99:10,.1f}", flush=True)
            if "torchrl" in rates:
                ratios.append(rates["shoal"] / rates["torchrl"])
        if ratios:
            median, low, high = statistics.median(ratios), min(ratios), max(ratios)
            print(f"{clients:7}  shoal/torchrl: {median:.1f} ({low:.1f} to {high:.1f})")


def ask_versions(model: Any, replies: int, results: Any) -> None:
    mixed, seen = 0, set()
    for _ in range(replies // 100):
        for reply in [model.submit(0.0, batched=False) for _ in range(100)]:
            numbers = set(reply.result())
            mixed += numbers != {float(reply.version)}
            seen.add(reply.version)
    results.put((mixed, len(seen)))


def versions(arguments: argparse.Namespace) -> None:
    clients = 4
    with shoal.ModelService({"filled": Filled}, max_batch=512, threads=1) as service:
        results = fork.Queue()
        model = service.model("filled")
        processes = [
            fork.Process(target=ask_versions, args=(model, arguments.replies // clients, results))
            for _ in range(clients)
        ]
        for process in processes:
            process.start()
        start, updates, told = time.perf_counter(), 0, []
        while len(told) < clients:
            updates += 1
            state = {str(i): np.full(1000, updates + 1.0) for i in range(8)}
            service.update("filled", state, mode="latest")
            while updates > arguments.rate * (time.perf_counter() - start):
                time.sleep(0.0002)
            while not results.empty():
                told.append(results.get())
        seconds = time.perf_counter() - start
        for process in processes:
            process.join()
    mixed, seen = sum(m for m, _ in told), max(s for _, s in told)
    print(
        f"{arguments.replies:,} replies in {seconds:.1f} s, {updates / seconds:,.0f} updates/s "
        f"({seen:,} versions seen by one client): {mixed} of mixed versions"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=["compare", "versions"], default="compare")
    parser.add_argument("--clients", type=int, action="append")
    parser.add_argument("--numbers", type=int, default=4, help="float32 in a row")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=1000.0, help="updates a second")
    arguments = parser.parse_args()
    {"compare": compare, "versions": versions}[arguments.what](arguments)


if __name__ == "__main__":
    main()
