"""What users had, with torch.multiprocessing: four ways in which tensors between processes fail, and one that works.

    python examples/hogwild/original.py gone | descriptors | overwritten | fork | spawn [--processes 4]

- gone: the process that made the tensors has ended before they are read (pytorch#7181, lightning#19945).
- descriptors: every tensor that is held takes descriptors, at both ends (pytorch#973, #11201). They run out.
- overwritten: a process fills one buffer again and again; who reads late reads what came later. No error says so.
- fork: Hogwild's processes are forked from one that has computed already (pytorch#2245). They wait for threads that a fork
  does not copy.
- spawn: the same, and it works. It says what it costs.

main.py and buffers.py are the programs that work.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from main import accuracy, digits, network, train  # what does not differ

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descriptors, hang, memory, positive


def put(queue: Any, count: int) -> None:
    for i in range(count):
        queue.put(torch.full((4,), float(i)))


def put_and_wait(queue: Any, count: int, read: Any) -> None:
    put(queue, count)
    read.wait()


def fill_again(queue: Any, count: int, put_all: Any, read: Any) -> None:
    buffer = torch.zeros(4)
    for i in range(count):
        buffer.fill_(i)
        queue.put(buffer)
    put_all.set()
    read.wait()


def gone() -> None:
    queue = mp.Queue()
    process = mp.Process(target=put, args=(queue, 3))
    process.start()
    process.join()
    print([queue.get()[0].item() for _ in range(3)])


def few_descriptors() -> None:
    count, queue, read = 200, mp.Queue(), mp.Event()
    before = descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + count // 2, before + count // 2))
    process = mp.Process(target=put_and_wait, args=(queue, count, read), daemon=True)
    process.start()
    held = [queue.get(timeout=30) for _ in range(count)]
    print(f"{len(held)} tensors are held, and {descriptors()} descriptors")
    read.set()


def overwritten() -> None:
    queue, put_all, read = mp.Queue(), mp.Event(), mp.Event()
    process = mp.Process(target=fill_again, args=(queue, 3, put_all, read), daemon=True)
    process.start()
    put_all.wait()
    values = [queue.get()[0].item() for _ in range(3)]
    read.set()
    process.join()
    if values != [0.0, 1.0, 2.0]:
        raise SystemExit(f"[0.0, 1.0, 2.0] was sent, and {values} was read")


def hogwild(method: str, processes: int, steps: int = 400) -> None:
    data = digits(2000, seed=5)
    model = network()
    print(f"accuracy before: {accuracy(model):.2f}", flush=True)
    model.share_memory()
    begun = time.perf_counter()
    arguments = (model, *data, steps // processes)
    context = mp.start_processes(train, arguments, processes, join=False, start_method=method)
    if method == "fork" and hang(context.pids()):
        for process in context.processes:
            process.kill()
        raise SystemExit(f"the {processes} processes wait, and nothing will wake them")
    weight = 0
    while not context.join(0.02):
        weight = max(weight, sum(map(memory, context.pids())))
    print(f"accuracy of {processes} processes {accuracy(model):.2f}")
    print(f"{time.perf_counter() - begun:.1f} s with their start, {weight / 2**20:.0f} MiB all processes together")


WAYS = {
    "gone": gone,
    "descriptors": few_descriptors,
    "overwritten": overwritten,
    "fork": lambda: hogwild("fork", options.processes),
    "spawn": lambda: hogwild("spawn", options.processes),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--processes", type=positive, default=4, help="of fork and spawn")
    options = parser.parse_args()
    WAYS[options.way]()
