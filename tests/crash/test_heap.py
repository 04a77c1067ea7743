"""kill -9 of processes that use the shared heap, at named points and at random moments: nothing of it is lost."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal._core import ipc

POINTS = [
    "heap.allocate.before",
    "heap.allocate.after",
    "heap.allocate.paged",
    "heap.acquire.before",
    "heap.acquire.after",
    "heap.release.before",
    "heap.release.after",
    "heap.pages.before",
    "heap.pages.reserved",
    "heap.pages.populated",
    "heap.fork.prepared",
    "heap.fork.step",
]

USER = f"""
import os, random, sys; sys.path[:0] = {[path for path in sys.path if path]!r}
from shoal._core import ipc
ipc.attach(int(sys.argv[1]))
dice = random.Random(int(sys.argv[2]))
handles = [tuple(map(int, text.split(":"))) for text in sys.argv[5:]]
os.write(1, b"r")
ipc.arm_fault_point(sys.argv[3], int(sys.argv[4]))
held = []
while True:
    held.append(ipc.Block(dice.randrange(1 << dice.randrange(4, 22))))
    held.append(ipc.acquire(*dice.choice(handles)))
    memoryview(held[-1])[0:1] = b"x"
    while len(held) > 20:
        held.pop(dice.randrange(len(held)))
    if dice.randrange(20) == 0:
        pid = os.fork()
        if pid == 0:
            own = ipc.Block(dice.randrange(10000))
            os._exit(0)
        os.waitpid(pid, 0)
"""


def start(seed: int, point: str, nth: int, handles: list[ipc.Block]) -> subprocess.Popen[bytes]:
    arguments = [str(ipc.fd()), str(seed), point, str(nth), *(f"{block.offset}:{block.serial}" for block in handles)]
    command = [sys.executable, "-c", USER, *arguments]
    user = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[ipc.fd()])
    assert user.stdout is not None and user.stdout.read(1) == b"r"
    return user


def expect_balance(before: dict[str, int]) -> None:
    deadline = time.monotonic() + 30
    while ipc.sweep() or ipc.stats()["processes"] > before["processes"]:  # what the dead had started ends, too
        assert time.monotonic() < deadline
    assert ipc.check() == []
    after = ipc.stats()
    assert (after["blocks"], after["references"]) == (before["blocks"], before["references"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_at_a_named_point(point: str, rounds: int) -> None:
    handles = [ipc.Block(100 * i + 1) for i in range(5)]
    ipc.sweep()
    before = ipc.stats()
    for seed in range(max(1, rounds // 5)):
        user = start(seed, point, 1 + seed * 7 % 40, handles)
        assert user.wait(60) == -signal.SIGKILL
        user.communicate()
        expect_balance(before)


@pytest.mark.timeout(600)
def test_processes_that_are_killed_at_random_moments(rounds: int) -> None:
    handles = [ipc.Block(100 * i + 1) for i in range(5)]
    ipc.sweep()
    before = ipc.stats()
    dice = random.Random(1)
    users = [start(seed, "", 1, handles) for seed in range(3)]
    for turn in range(rounds):
        ready = select.select([], [], [], dice.uniform(0, 0.02))  # let them run
        assert not any(ready)
        users.append(start(100 + turn, "", 1, handles))
        victim = users.pop(dice.randrange(3))
        victim.kill()
        victim.communicate()
        ipc.sweep()
        assert ipc.check() == []
    for user in users:
        user.kill()
        user.communicate()
    expect_balance(before)
    assert not [name for name in os.listdir("/dev/shm") if "shoal" in name]
    assert Path(f"/proc/self/fd/{ipc.fd()}").exists()
