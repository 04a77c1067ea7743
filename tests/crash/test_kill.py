"""kill -9 of a worker, of the zygote and of the parent at random moments: a typed error or a restart within two seconds, as
promise.py counts them, and nothing left behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from promise import await_ended, patience

START = 60.0
"""Seconds until the victim must step."""

modes = pytest.mark.parametrize("mode", ["sync", "async"])
"""Environments stepped all together, or one by one."""


class Victim:
    """A running victim.py; `zygote` and `workers` are its processes, by pidfd."""

    def __init__(self, on_fault: str, mode: str, costs: int) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim.py")), on_fault, mode, str(costs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert self.process.stdout is not None
        self._unread = b""
        word, *pids = self.line().split()
        assert word == "pids"
        self.zygote, self.workers = -1, list[int]()
        self.watch(pids)
        self.pidfd = os.pidfd_open(self.process.pid)

    def line(self, waited_for: str = "") -> str:
        """The next line of its output; "" when it has ended. `waited_for`: it is to come as promised."""
        assert self.process.stdout is not None
        for timeout in patience(waited_for) if waited_for else itertools.repeat(START):
            if b"\n" in self._unread:
                break
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                assert waited_for, f"not a word in {START} s"
                continue
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def watch(self, pids: list[str]) -> None:
        """These are its processes now."""
        for fd in [self.zygote, *self.workers]:
            if fd >= 0:
                os.close(fd)
        self.zygote, *self.workers = [os.pidfd_open(int(pid)) for pid in pids]

    def open_descriptors(self) -> list[str]:
        """What they are, without the numbers of the kernel's objects. It is stepping, and looks at the machine's load meanwhile."""
        folder = f"/proc/{self.process.pid}/fd"
        targets = []
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                targets.append(re.sub(r"\d+", "", os.readlink(f"{folder}/{fd}")))
        return sorted(target for target in targets if target != "/proc/loadavg")

    def close(self) -> None:
        for fd in (self.zygote, *self.workers, self.pidfd):
            os.close(fd)
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def victim(on_fault: str = "raise", mode: str = "sync", costs: int = 4) -> Iterator[Victim]:
    running = Victim(on_fault, mode, costs)
    try:
        yield running
    finally:
        running.close()


def kill_soon(pidfd: int, dice: random.Random) -> None:
    """At a moment that is anywhere in a step."""
    time.sleep(dice.uniform(0.0, 0.02))
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)


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
            assert running.line("the error of a killed worker") == f"died {index} -9"
            await_ended(running.workers)


@modes
@pytest.mark.parametrize("target", ["worker", "zygote"])
@pytest.mark.timeout(3600)
def test_what_is_killed_is_restarted_again_and_again(rounds: int, mode: str, target: str) -> None:
    """Many kills of one program, which has not a descriptor more after the last."""
    with victim("restart", mode, 4 if target == "worker" else 8) as running:
        before = running.open_descriptors()
        for dice in play(2 * rounds, 2):
            index = dice.randrange(2)
            gone = [running.workers[index]] if target == "worker" else [running.zygote, *running.workers]
            kill_soon(gone[0], dice)
            words = running.line(f"the restart after the death of a {target}").split()
            rows, pids = words[1 : words.index("pids")], words[words.index("pids") + 1 :]
            assert words[0] == "restarted"
            lost = range(4 * index, 4 * index + 4) if target == "worker" else range(8)
            assert rows == [str(row) for row in lost]
            await_ended(gone)
            running.watch(pids)
            assert running.open_descriptors() == before


@modes
@pytest.mark.timeout(3600)
def test_a_killed_zygote_takes_its_workers_and_is_a_typed_error(rounds: int, mode: str) -> None:
    for dice in play(rounds, 3):
        with victim(mode=mode) as running:
            kill_soon(running.zygote, dice)
            assert running.line("the error of a killed zygote") in ("died 0 None", "died 1 None")
            await_ended(running.workers)


@modes
@pytest.mark.timeout(3600)
def test_a_killed_parent_leaves_no_process(rounds: int, mode: str) -> None:
    for dice in play(rounds, 4):
        with victim(mode=mode) as running:
            kill_soon(running.pidfd, dice)
            await_ended([running.zygote, *running.workers])
