"""What the programs in these folders have in common: counts that they take; processes, and what those hold, that they print."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from pathlib import Path

__all__ = [
    "asleep",
    "cpu_seconds",
    "descendants",
    "descriptors",
    "gpu_mib",
    "hang",
    "memory",
    "memory_of_tree",
    "positive",
]


def positive(text: str) -> int:
    """A count among the arguments of a program."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def descendants(pid: int | None = None) -> list[int]:
    """The processes below one, by default below this one."""
    found: list[int] = []
    unseen = [os.getpid() if pid is None else pid]
    while unseen:
        try:
            for task in Path(f"/proc/{unseen.pop()}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                unseen += children
        except OSError:
            continue  # ended meanwhile
    return found


def memory(pid: int) -> int:
    """Proportional set size in bytes: pages that processes share are divided among them. 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def memory_of_tree() -> int:
    """Of this process and all below it, in bytes."""
    return sum(map(memory, [os.getpid(), *descendants()]))


def gpu_mib() -> int:
    """What all processes together hold of the memory of this machine's GPUs, in MiB; 0 where there are none."""
    if shutil.which("nvidia-smi") is None:
        return 0
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))


def descriptors(pid: int | None = None) -> int:
    """How many a process has open, by default this one."""
    return len(os.listdir(f"/proc/{os.getpid() if pid is None else pid}/fd"))


def cpu_seconds(pid: int) -> float:
    """What a process has computed since it was started; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asleep(pid: int) -> bool:
    """Whether every thread of a process waits for something: none computes, and none waits for a CPU."""
    try:
        states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # ended meanwhile
    return bool(states) and set(states) == {"S"}


def hang(pids: list[int], seconds: float = 3.0) -> bool:
    """Waits until one of the processes has ended (False), or all of them have slept so long, without a moment of computing
    (True)."""
    quiet, computed = 0.0, -1.0
    while quiet < seconds:
        time.sleep(0.1)
        if not all(Path(f"/proc/{pid}/exe").exists() for pid in pids):  # a zombie has none
            return False
        now = sum(map(cpu_seconds, pids))
        quiet = quiet + 0.1 if now == computed and all(map(asleep, pids)) else 0.0
        computed = now
    return True
