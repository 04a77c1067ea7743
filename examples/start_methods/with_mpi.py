"""Each rank of mpirun has worker processes of its own, which are no ranks.

    mpirun -n 2 python examples/start_methods/with_mpi.py [--theirs]

`--theirs` is what users had: CPython's spawned processes import this file, and with it mpi4py, which takes them for ranks
(mpi4py#705). Ours do not run it again, and the launcher's variables are hidden from them.
"""

from __future__ import annotations

import argparse
import importlib
import os
from typing import Any

from mpi4py import MPI


def work(queue: Any) -> None:
    queue.put(sorted(name for name in os.environ if name.startswith(("OMPI_COMM_", "PMIX_", "PMI_"))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--theirs", action="store_true", help="with CPython's multiprocessing")
    theirs = parser.parse_args().theirs
    mp: Any = importlib.import_module("multiprocessing" if theirs else "shoal.multiprocessing")
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [context.Process(target=work, args=(queue,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    well = sum(process.exitcode == 0 for process in processes)
    total = MPI.COMM_WORLD.allreduce(well)
    seen = max([len(queue.get()) for _ in range(well)], default=0)
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    text = f"rank {rank} of {size}: {total} of {2 * size} workers did their work, and saw {seen} of MPI's variables\n"
    os.write(1, text.encode())  # at once: all ranks write to one pipe
    if total < 2 * size:
        MPI.COMM_WORLD.Abort(1)
