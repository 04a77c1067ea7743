"""What users had, with CPython's multiprocessing: six ways in which starting processes fails.

    python examples/start_methods/original.py context | lambda | preload | pool | logs | port

- context: a library has asked which start method there is, and none can be chosen any more (pytorch#3492).
- lambda: what is no function of a module does not reach a spawned process.
- preload: a name that is misspelt is ignored, and every process imports for itself (cpython#117378, #98552).
- pool: a worker is killed, by the kernel for its memory, say. The pool never returns (cpython#96062).
- logs: what spawned processes log is lost (sample-factory#191).
- port: two runs on one machine, a process for each device, and one port for both.

main.py and data_parallel.py are the programs that work.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing as mp
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descendants, hang


def context() -> None:
    mp.get_start_method()  # somewhere in a library
    mp.set_start_method("spawn")


def with_lambda() -> None:
    process = mp.get_context("spawn").Process(target=lambda: print("from a lambda"))
    process.start()
    process.join()


def is_preloaded(queue: Any) -> None:
    queue.put("heavy" in sys.modules)


def preload() -> None:
    forkserver = mp.get_context("forkserver")
    forkserver.set_forkserver_preload(["heavvy"])
    queue = forkserver.Queue()
    process = forkserver.Process(target=is_preloaded, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    if not found:
        raise SystemExit("the preload was ignored, and nobody said so")


def task(i: int) -> int:
    if i == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def pool() -> None:
    with mp.get_context("spawn").Pool(2) as workers:
        result = workers.map_async(task, range(6), chunksize=1)
        while not result.ready():
            if hang(descendants()) and not result.ready():
                raise SystemExit("task 3 was killed, all others are done, and the result will never come")
        print(result.get())


def log() -> None:
    logging.info("from process %s", mp.current_process().name)


def logs() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.info("from the program")
    process = mp.get_context("spawn").Process(target=log)
    process.start()
    process.join()


def join_group(rank: int, processes: int) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=processes)
    dist.destroy_process_group()


def port() -> None:
    import socket

    import torch.multiprocessing

    other_run = socket.socket()
    other_run.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other_run.bind(("127.0.0.1", 29500))
    other_run.listen()
    torch.multiprocessing.spawn(join_group, (1,), nprocs=1)


WAYS = {"context": context, "lambda": with_lambda, "preload": preload, "pool": pool, "logs": logs, "port": port}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    WAYS[parser.parse_args().way]()
