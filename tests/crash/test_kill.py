"""kill -9 of a worker, of the zygote and of the parent at random moments: a typed error or a restart within two seconds,
and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BOUND = 2.0
"""Seconds until everybody must have taken notice."""

START = 60.0
"""Seconds until the victim must step."""

modes = pytest.mark.parametrize("mode", ["sync", "async"])
"""Environments stepped all together, or one by one."""


class Victim:
    """A running victim.py; `zygote` and `workers` are its processes, by pidfd."""

    def __init__(self, on_fault: str, mode: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim.py")), on_fault, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdout is not None
        self._unread = b""
        word, *pids = self.line(START).split()
        assert word == "pids"
        self.zygote, *self.workers = [os.pidfd_open(int(pid)) for pid in pids]
        self.pidfd = os.pidfd_open(self.process.pid)

    def line(self, timeout: float) -> str:
        """The next line of its output; "" when it has ended."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            assert select.select([self.process.stdout], [], [], left)[0], f"not a word in {timeout} s"
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def open_descriptors(self) -> list[str]:
        folder = f"/proc/{self.process.pid}/fd"
        return sorted(os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))

    def close(self) -> None:
        for fd in (self.zygote, *self.workers, self.pidfd):
            os.close(fd)
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def victim(on_fault: str = "raise", mode: str = "sync") -> Iterator[Victim]:
    running = Victim(on_fault, mode)
    try:
        yield running
    finally:
        running.close()


def kill_soon(pidfd: int, dice: random.Random) -> None:
    """At a moment that is anywhere in a step."""
    time.sleep(dice.uniform(0.0, 0.02))
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def assert_ended(*pidfds: int) -> None:
    deadline = time.monotonic() + BOUND
    left = set(pidfds)
    while left:
        ready = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))[0]
        assert ready, f"{len(left)} process(es) outlived the kill by {BOUND} s"
        left -= set(ready)


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "shoal" in name.lower()}


@pytest.fixture(autouse=True)
def no_named_segment_left() -> Iterator[None]:
    before = shared_memory()
    yield
    assert shared_memory() <= before


def play(rounds: int, seed: int) -> Iterator[random.Random]:
    for turn in range(rounds):
        yield random.Random(f"{seed} {turn}")


@modes
@pytest.mark.timeout(3600)
def test_a_killed_worker_is_a_typed_error(rounds: int, mode: str) -> None:
    for dice in play(rounds, 1):
        index = dice.randrange(2)
        with victim(mode=mode) as running:
            kill_soon(running.workers[index], dice)
            assert running.line(BOUND) == f"died {index} -9"
            assert_ended(*running.workers)


@modes
@pytest.mark.timeout(3600)
def test_a_killed_worker_is_restarted(rounds: int, mode: str) -> None:
    with victim("restart", mode) as running:
        kill_soon(running.workers[0], random.Random(0))
        assert running.line(BOUND) == "restarted 0 1 2 3"
    for dice in play(rounds, 2):
        index = dice.randrange(2)
        with victim("restart", mode) as running:
            before = running.open_descriptors()
            kill_soon(running.workers[index], dice)
            rows = "0 1 2 3" if index == 0 else "4 5 6 7"
            assert running.line(BOUND) == f"restarted {rows}"
            assert_ended(running.workers[index])
            assert len(running.open_descriptors()) <= len(before) + 1  # one may be on its way to the new worker


@modes
@pytest.mark.timeout(3600)
def test_a_killed_zygote_takes_its_workers_and_is_a_typed_error(rounds: int, mode: str) -> None:
    for dice in play(rounds, 3):
        with victim(mode=mode) as running:
            kill_soon(running.zygote, dice)
            assert running.line(BOUND).startswith("died ")
            assert_ended(*running.workers)


@modes
@pytest.mark.timeout(3600)
def test_a_killed_parent_leaves_no_process(rounds: int, mode: str) -> None:
    for dice in play(rounds, 4):
        with victim(mode=mode) as running:
            kill_soon(running.pidfd, dice)
            assert_ended(running.zygote, *running.workers)
