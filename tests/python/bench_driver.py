"""One adapter of the benchmarks with environments that write down what is done to them. Run by path, with the peer's interpreter.

    bench_driver.py CONTESTANT_PROGRAM ADAPTER MODE FOLDER NUM_ENVS NUM_WORKERS

Prints, as JSON, how many steps the adapter counted in a window and how many it made. FOLDER gets a file `seeds` with a line for each
seed that an environment was reset with.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path


def main() -> None:
    program, adapter, mode, folder, num_envs, num_workers = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = importlib.util.spec_from_file_location("contestant", program)
    contestant = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contestant)
    contestant.provide_package()
    from shoal.bench import measuring
    from shoal.bench.workloads import WORKLOADS, NoopEnv, Workload

    class Recorded(NoopEnv):
        """Appends to files: that is one step for the kernel, whichever process does it."""

        def __init__(self) -> None:
            super().__init__()
            self._steps = os.open(Path(folder, "steps"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            self._seeds = os.open(Path(folder, "seeds"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def reset(self, *, seed=None, options=None):
            if seed is not None:
                os.write(self._seeds, f"{seed}\n".encode())
            return super().reset()

        def step(self, action):
            assert action in (0, 1)
            os.write(self._steps, b".")
            return super().step(action)

    def repeating(turn):
        """Without the part of the window that is not counted."""

        def measure(seconds):
            begin = measuring.time.perf_counter()
            steps = 0
            while (elapsed := measuring.time.perf_counter() - begin) < seconds:
                steps += turn()
            return steps, elapsed

        return measure

    measuring.repeating = repeating
    WORKLOADS["recorded"] = Workload("recorded", Recorded)
    with ExitStack() as closing:
        module = importlib.import_module(f"shoal.bench.adapters.{adapter}")
        task = measuring.Task(mode, "recorded", int(num_envs), int(num_workers), closing)
        measure = module.MODES[mode](task)
        before = Path(folder, "steps").stat().st_size if Path(folder, "steps").exists() else 0
        counted, _ = measure(0.2)
        made = Path(folder, "steps").stat().st_size - before
    print(json.dumps({"counted": counted, "made": made, "settings": task.settings}), file=answers)


if __name__ == "__main__":
    main()
