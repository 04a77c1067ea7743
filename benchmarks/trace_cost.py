"""What `shoal trace` costs those it listens to: the same environments stepped while nobody listens and while somebody does, in turns.

Steps by the clock, which the listener's own time lowers where workers have every CPU, and steps by the time of CPUs that the caller and its
workers took, which it does not.

python benchmarks/trace_cost.py [--rounds 9] [--seconds 1]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from in_turns import compared, rates_of, show

import shoal

NUM_ENVS = 64
WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "native, in the caller's thread": ("shoal/CartPole-v1", {"num_workers": 0}),
    "native, in two threads": ("shoal/CartPole-v1", {"num_workers": 2}),
    "Python, in the caller's thread": ("CartPole-v1", {"num_workers": 0}),
    "Python, in two processes": ("CartPole-v1", {"num_workers": 2}),
}

LISTENER = """
import sys
from shoal.trace import Listener, family
for line in sys.stdin:
    listener = Listener(lambda: family(int(line)))
    print(listener.processes, flush=True)
    listener.listen(float(sys.stdin.readline()))
    processes = listener.stop()
    print(sum(len(process["span"]) for process in processes), sum(process["lost"] for process in processes), flush=True)
"""


class Window:
    """Steps for a while, alone or listened to by another process.

    Attributes:
        by_cpu: of each side, the steps of each window by the CPU time of the caller and the `workers`.
    """

    def __init__(self, step: Callable[[], Any], workers: list[int], seconds: float, listener: Any) -> None:
        self._step, self._seconds, self._listener = step, seconds, listener
        # The kernel's name for the clock of the CPU time of a process.
        self._clocks = [time.CLOCK_PROCESS_CPUTIME_ID, *(~pid << 3 | 2 for pid in workers)]
        self.spans = self.lost = 0
        self.by_cpu: dict[str, list[float]] = {"off": [], "on": []}

    def off(self) -> float:
        return self._rate("off")

    def on(self) -> float:
        print(os.getpid(), file=self._listener.stdin, flush=True)
        assert int(self._listener.stdout.readline()) > 0
        print(self._seconds + 0.2, file=self._listener.stdin, flush=True)
        time.sleep(0.1)
        rate = self._rate("on")
        spans, lost = map(int, self._listener.stdout.readline().split())
        self.spans, self.lost = self.spans + spans, self.lost + lost
        return rate

    def _cpu(self) -> float:
        return sum(map(time.clock_gettime, self._clocks))

    def _rate(self, side: str) -> float:
        steps = 0
        cpu = self._cpu()
        begin = time.perf_counter()
        while (now := time.perf_counter()) < begin + self._seconds:
            for _ in range(20):
                self._step()
            steps += 20 * NUM_ENVS
        self.by_cpu[side].append(steps / (self._cpu() - cpu))
        return steps / (now - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    options = parser.parse_args()
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    for title, (env, arguments) in WORKLOADS.items():
        with shoal.make_vec(env, NUM_ENVS, **arguments) as envs:
            envs.reset(seed=0)
            actions = np.ones(NUM_ENVS, np.int64)
            workers = sorted({worker["pid"] for worker in envs.health()} - {os.getpid()})
            window = Window(lambda envs=envs, actions=actions: envs.step(actions), workers, options.seconds, listener)
            window.off()
            window.by_cpu["off"].clear()
            by_clock = rates_of({"off": window.off, "on": window.on}, options.rounds)
            print(f"{title}, {NUM_ENVS} x {env}; {window.spans:,} spans, {window.lost:,} lost")
            for rates in (by_clock, window.by_cpu):
                show(compared(rates, "of off", first_is_above=False), "of off")
    listener.stdin.close()
    listener.wait()


if __name__ == "__main__":
    main()
