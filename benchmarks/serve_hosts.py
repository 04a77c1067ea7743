"""What it costs to ask a model service by TCP: the same service asked on its host and through a connection, in one run, by turns.

    python benchmarks/serve_hosts.py                             # 1, 8 and 64 clients, rows of 128 bytes; --seconds 2 --rounds 5
    python benchmarks/serve_hosts.py --clients 16 --numbers 7056

Both ends are processes of this machine, joined by the loopback: what is told is the cost of the code, of the kernel, and of CPUs that
have more to do, without a network's latency. The model is a Python function that returns its rows; each client is a process that asks
about one row at a time. A ratio is of one round's two figures.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import serve

import shoal


def served(pipe: Any) -> None:
    """The life of the process that has the service."""
    with shoal.ModelService({"echo": serve.echo}, max_batch=64, threads=1, listen="127.0.0.1:0") as service:
        pipe.send((service.listening, service.model("echo")))
        pipe.recv()


def compare(models: dict[str, Any], arguments: argparse.Namespace) -> None:
    print("clients  asked       requests/s      p50 µs      p99 µs")
    for clients in arguments.clients or [1, 8, 64]:
        shares, extra = [], []
        for turn in range(arguments.rounds):
            order = list(models) if turn % 2 == 0 else list(models)[::-1]
            result = {}
            for name in order:
                result[name] = serve.asked(models[name], clients, arguments.numbers, arguments.seconds)
                rate, p50, p99 = result[name].values()
                print(f"{clients:7}  {name:9}  {rate:11,.0f}  {p50 * 1e6:10,.1f}  {p99 * 1e6:10,.1f}", flush=True)
            shares.append(result["by tcp"]["per_second"] / result["here"]["per_second"])
            extra.append((result["by tcp"]["p50"] - result["here"]["p50"]) * 1e6)
        print(
            f"{clients:7}  by tcp/here: {statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}) of the requests, "
            f"p50 {statistics.median(extra):+,.0f} µs ({min(extra):+,.0f} to {max(extra):+,.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="*")
    parser.add_argument("--numbers", type=int, default=32, help="float32 numbers of a row")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    here, there = serve.fork.Pipe()
    process = serve.fork.Process(target=served, args=(there,))
    process.start()
    try:
        address, model = here.recv()
        with shoal.ModelService.connect(address) as service:
            compare({"here": model, "by tcp": service.model("echo")}, arguments)
    finally:
        here.send(None)
        process.join()


if __name__ == "__main__":
    main()
