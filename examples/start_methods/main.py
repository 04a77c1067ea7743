"""Start methods side by side in one program, and what fails in original.py: lambdas, preloading, pools, logs.

    python examples/start_methods/main.py [--processes 4]

No `if __name__ == "__main__"` is needed: nothing runs this file a second time.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import shoal
import shoal.multiprocessing as mp

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory, positive

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--processes", type=positive, default=4)
options = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(processName)s logs: %(message)s", stream=sys.stdout)

# A context is an object. Three of them, and no global start method; a lambda for each of them, which knows `scale`.
scale = np.arange(3)
for method in ("fork", "forkserver", "spawn"):
    context = mp.get_context(method)
    queue, end = context.Queue(), context.Event()
    begun = time.perf_counter()
    processes = [
        context.Process(
            target=lambda i, queue, end: (queue.put(int((i * scale).sum())), end.wait()), args=(i, queue, end)
        )
        for i in range(options.processes)
    ]
    for process in processes:
        process.start()
    sums = sorted(queue.get() for _ in processes)
    seconds = time.perf_counter() - begun
    each = max(memory(process.pid) for process in processes)
    end.set()
    for process in processes:
        process.join()
    assert sums == [3 * i for i in range(options.processes)]
    print(
        f"{method}: {len(processes)} processes answered after {seconds:.2f} s, {each / 2**20:.1f} MiB each", flush=True
    )

# What is preloaded is imported once; a name that is misspelt is an error of the start.
context = mp.get_context("forkserver", preload=["heavy"])
queue = context.Queue()


def look() -> None:
    import heavy

    queue.put(heavy.imported_by)


processes = [context.Process(target=look) for _ in range(options.processes)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print(f"heavy was imported by {len({queue.get() for _ in processes})} process for {len(processes)}")
try:
    mp.get_context("forkserver", preload=["heavvy"]).Process(target=look).start()
except Exception as error:
    print(f"a misspelt preload: {str(error).splitlines()[0]}")


# A worker that is killed fails the task that it had.
def task(i: int) -> int:
    if i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


with mp.Pool(2) as pool:
    results = [pool.apply_async(task, (i,)) for i in range(6)]
    done, lost = [], []
    for i, result in enumerate(results):
        try:
            done.append(result.get())
        except shoal.WorkerDied:
            lost.append(i)
print(f"tasks {done} are done, {lost} was killed")

# What a process prints and logs comes to the program's own handlers.
with mp.LogRelay() as relay:
    process = mp.Process(target=lambda: logging.info("from a process"), name="worker", relay=relay)
    process.start()
    process.join()
