"""Seeds as processes, a CPU each, which end with whoever runs them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shoal.bench.roster import PACKAGES, interpreter
from shoal.process._settings import search_path

__all__ = ["Pool", "python_of"]

PROGRAMS = {side: Path(__file__).with_name(name) for side, name in (("shoal", "program.py"), ("sb3", "sb3_program.py"))}

# Runs a program by path on one CPU. The kernel kills it when the thread that started it ends, which waits for it: when all of the
# program does that has the pool.
_CONFINED = """
import ctypes, os, runpy, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("who started it has ended")
os.sched_setaffinity(0, {int(sys.argv[2])})
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def python_of(side: str) -> str | None:
    """The interpreter that has what a side needs."""
    if side == "shoal" or find_spec("stable_baselines3") is not None:
        return sys.executable
    return interpreter("sb3")


class Pool:
    """CPUs that are lent to processes, one each. A context manager: leaving it kills those that run, and none begins any more.

    Threads: any one may call train().

    Args:
        cpus: one is lent to so many processes at a time as it stands here.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False
        for cpu in cpus:
            self._free.put(cpu)

    def train(self, side: str, task: dict[str, Any]) -> dict[str, Any]:
        """What the process said; {"failed": why} of one that failed."""
        cpu = self._free.get()
        try:
            return self._run(side, task, cpu)
        finally:
            self._free.put(cpu)

    def close(self) -> None:
        """Kills what runs. Whoever waits in train() gets that it failed."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, side: str, task: dict[str, Any], cpu: int) -> dict[str, Any]:
        process = self._started(side, task, cpu)
        if process is None:
            return {"failed": "it was not begun"}
        out, errors = process.communicate()
        with self._lock:
            self._running.remove(process)
        return _told(process.returncode, out, errors)

    def _started(self, side: str, task: dict[str, Any], cpu: int) -> subprocess.Popen[str] | None:
        """None where the pool is closed."""
        python = python_of(side)
        assert python is not None
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
        if side == "shoal":
            environment["PYTHONPATH"] = os.pathsep.join(
                [str(PACKAGES), *search_path()]
            )  # a row's task is found there too
        arguments = [str(os.getpid()), str(cpu), str(PROGRAMS[side]), json.dumps(task)]
        with self._lock:
            if self._closed:
                return None
            process = subprocess.Popen(
                [python, "-c", _CONFINED, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            )
            self._running.add(process)
        return process


def _told(status: int, out: str, errors: str) -> dict[str, Any]:
    """What a process said that ended with `status`; why it failed is the last line that it wrote, or the signal that killed it."""
    if status < 0:
        return {"failed": f"killed by {signal.Signals(-status).name}"}
    written = [line for line in errors.splitlines() if line.strip()] or [f"it ended with status {status}"]
    if status > 0:
        return {"failed": written[-1]}
    try:
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"failed": "it said nothing at its end"}
    return told
