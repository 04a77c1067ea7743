"""What `shoal trace` costs those it listens to: the same environments stepped while nobody listens and while somebody does, in turns.

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
    """Steps for a while, alone or listened to by another process."""

    def __init__(self, step: Callable[[], Any], seconds: float, listener: Any) -> None:
        self._step, self._seconds, self._listener = step, seconds, listener
        self.spans = self.lost = 0

    def off(self) -> float:
        return self._rate()

    def on(self) -> float:
        print(os.getpid(), file=self._listener.stdin, flush=True)
        assert int(self._listener.stdout.readline()) > 0
        print(self._seconds + 0.2, file=self._listener.stdin, flush=True)
        time.sleep(0.1)
        rate = self._rate()
        spans, lost = map(int, self._listener.stdout.readline().split())
        self.spans, self.lost = self.spans + spans, self.lost + lost
        return rate

    def _rate(self) -> float:
        steps = 0
        begin = time.perf_counter()
        while (now := time.perf_counter()) < begin + self._seconds:
            for _ in range(20):
                self._step()
            steps += 20 * NUM_ENVS
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
            window = Window(lambda envs=envs, actions=actions: envs.step(actions), options.seconds, listener)
            window.off()
            rates = rates_of({"off": window.off, "on": window.on}, options.rounds)
            print(f"{title}, {NUM_ENVS} x {env}; {window.spans:,} spans, {window.lost:,} lost")
            show(compared(rates, "of off", first_is_above=False), "of off")
    listener.stdin.close()
    listener.wait()


if __name__ == "__main__":
    main()
