"""Objects per second and round trips through queues, Shoal's beside CPython's and torch's, alternating in one run.

    python benchmarks/queues.py                            # all payloads; --seconds 0.5 --rounds 5
    python benchmarks/queues.py int list                   # some of them
    python benchmarks/queues.py --contestant torch --contestant shoal

    python benchmarks/queues.py cuda "kept cuda"           # tensors on a CUDA device, beside torch's

stream: batches of at most 64 objects are put, then the other process says that it has them all.
trip: an object goes there and comes back; of a tensor on a device, a clone of it, since torch sends none that it was sent. Both
processes are forks without other work; with a device they are spawned. A ratio is of one round's two figures.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import shoal
from shoal.multiprocessing.queues import Queue, SimpleQueue

fork = multiprocessing.get_context("fork")
Make = Callable[[], Any]
"""Makes the next object that is sent."""


def torch_queue(kind: str) -> Any:
    import torch.multiprocessing as torch_mp

    return getattr(torch_mp.get_context("fork"), kind)()


CONTESTANTS: dict[str, Callable[[], Any]] = {
    "shoal": SimpleQueue,
    "shoal.Queue": Queue,
    "cpython": fork.SimpleQueue,
    "cpython.Queue": fork.Queue,
    "torch": lambda: torch_queue("SimpleQueue"),
    "torch.Queue": lambda: torch_queue("Queue"),
}
DEFAULT_CONTESTANTS = ("shoal", "cpython", "torch")


def spawned(name: str) -> tuple[Any, Callable[[], Any]]:
    """The context of a contestant whose processes have a device, and what makes its queues."""
    context = importlib.import_module(f"{name.partition('.')[0]}.multiprocessing").get_context("spawn")
    return context, context.Queue if name.endswith("Queue") else context.SimpleQueue


def new_array(nbytes: int) -> Make:
    import numpy as np

    return lambda: np.zeros(nbytes, np.uint8)


def new_tensor(nbytes: int) -> Make:
    import torch

    torch.set_num_threads(1)
    return lambda: torch.zeros(nbytes, dtype=torch.uint8)


def new_on_device(nbytes: int) -> Make:
    import torch

    return lambda: torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def kept_on_device(nbytes: int) -> Make:
    tensor = new_on_device(nbytes)()
    return lambda: tensor


def kept_tensor(nbytes: int) -> Make:
    import torch

    tensor = torch.zeros(nbytes, dtype=torch.uint8)  # shared by its first put
    return lambda: tensor


SIZES = {"1K": 2**10, "64K": 2**16, "1M": 2**20, "16M": 2**24}
PAYLOADS: dict[str, tuple[int, Callable[[], Make]]] = {
    "int": (8, lambda: lambda: 7),
    "tuple": (64, lambda: lambda: (1, "two", 3.0, None, True)),
    "dict": (200, lambda: lambda: {"obs": [1.0, 2.0, 3.0, 4.0], "reward": 1.0, "done": False, "info": {}}),
    "list": (4000, lambda: lambda: list(range(1000))),
    **{f"bytes {name}": (size, lambda size=size: lambda: bytes(size)) for name, size in SIZES.items()},
    **{f"array {name}": (size, lambda size=size: new_array(size)) for name, size in SIZES.items()},
    **{f"tensor {name}": (size, lambda size=size: new_tensor(size)) for name, size in SIZES.items()},
    **{f"kept tensor {name}": (size, lambda size=size: kept_tensor(size)) for name, size in SIZES.items()},
}
"""Name: bytes of one, and what gets ready to make them."""
ON_A_DEVICE: dict[str, tuple[int, Callable[[], Make]]] = {
    **{f"cuda tensor {name}": (size, lambda size=size: new_on_device(size)) for name, size in SIZES.items()},
    **{f"kept cuda tensor {name}": (size, lambda size=size: kept_on_device(size)) for name, size in SIZES.items()},
}
"""The same, of those that need a CUDA device, and are measured where they are asked for."""
ALL = PAYLOADS | ON_A_DEVICE


class Pair:
    """This process and another one, with a queue each way."""

    def __init__(self, context: Any, make_queue: Callable[[], Any], clones: bool) -> None:
        self.there, self.back = make_queue(), make_queue()
        self.control, theirs = context.Pipe()
        self.peer = context.Process(target=serve, args=(self.there, self.back, theirs, clones), daemon=True)
        self.peer.start()
        self.trip(lambda: None, 1, 1)  # it has started

    def stream(self, make: Make, count: int, batch: int) -> float:
        """Seconds for `count` objects, a multiple of `batch`."""
        self.control.send(("stream", count, batch))
        begin = time.perf_counter()
        for _ in range(count // batch):
            for _ in range(batch):
                self.there.put(make())
            self.back.get()
        return time.perf_counter() - begin

    def trip(self, make: Make, count: int, batch: int) -> float:
        self.control.send(("trip", count, batch))
        begin = time.perf_counter()
        for _ in range(count):
            self.there.put(make())
            self.back.get()
        return time.perf_counter() - begin

    def close(self) -> None:
        self.control.send(None)
        self.peer.join()


def serve(there: Any, back: Any, control: Any, clones: bool) -> None:
    for what, count, batch in iter(control.recv, None):
        for i in range(1, count + 1):
            obj = there.get()
            if what == "trip":
                back.put(obj.clone() if clones and obj is not None else obj)
            elif i % batch == 0:
                back.put(None)


def measure(run: Callable[[int], float], batch: int, seconds: float) -> float:
    """Seconds for one, of as many as take about `seconds`."""
    count = batch
    while True:
        took = run(count)
        if took >= seconds / 2:
            return took / count
        wanted = int(count * seconds / max(took, 1e-6))
        count = batch * max(1, min(wanted, 20 * count) // batch)


def compare(payload: str, contestants: list[str], seconds: float, rounds: int) -> None:
    nbytes, prepare = ALL[payload]
    on_a_device = payload in ON_A_DEVICE
    batch = max(1, min(64, 2**25 // nbytes))
    makes = {name: prepare() for name in contestants}  # torch moves what it sends to its own shared memory
    pairs = {
        name: Pair(*(spawned(name) if on_a_device else (fork, CONTESTANTS[name])), clones=on_a_device)
        for name in contestants
    }
    found: dict[str, dict[str, list[float]]] = {what: {name: [] for name in pairs} for what in ("stream", "trip")}
    for _ in range(rounds):
        for what, times in found.items():
            for name, pair in pairs.items():
                run = getattr(pair, what)
                times[name].append(
                    measure(
                        lambda count, run=run, make=makes[name]: run(make, count, batch),
                        batch if what == "stream" else 1,
                        seconds,
                    )
                )
    for pair in pairs.values():
        pair.close()
    for name in pairs:
        rates = [1 / took for took in found["stream"][name]]
        trips = [took * 1e6 for took in found["trip"][name]]
        first = contestants[0]
        more = [mine / theirs for mine, theirs in zip(found["stream"][name], found["stream"][first], strict=True)]
        text = f"| {payload} | {name} | {spread(rates, ',.0f')} /s | {spread(trips, ',.1f')} µs |"
        print(text + ("" if name == first else f" {first}: {spread(more, '.1f')} × as many |"), flush=True)


def spread(figures: list[float], form: str) -> str:
    return f"{statistics.median(figures):{form}} ({min(figures):{form}} – {max(figures):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("payload", nargs="*", help=f"of {', '.join(ALL)}; the first word is enough for all sizes")
    parser.add_argument("--contestant", action="append", choices=CONTESTANTS)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    wanted = args.payload or list(PAYLOADS)
    names = [name for name in ALL if any(name == word or name.startswith(f"{word} ") for word in wanted)]
    print(f"shoal {shoal.__version__}, {os.cpu_count()} CPUs")
    for name in names:
        contestants = args.contestant or [c for c in DEFAULT_CONTESTANTS if name in PAYLOADS or c != "cpython"]
        compare(name, contestants, args.seconds, args.rounds)


if __name__ == "__main__":
    main()
