"""Environments that start processes of their own: they may, and none of those outlives its worker."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from promise import await_ended, await_that

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        os.close(2)
        time.sleep(600)
os._exit(0)
"""


class Nested(gymnasium.Env):
    """Has a child, a grandchild, a process of multiprocessing's, one in a session of its own, and a daemon."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, daemons: bool = True) -> None:
        sleep = "import time; time.sleep(600)"
        parent = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {sleep!r}]); print(p.pid, flush=True); p.wait()"
        self.grandparent = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
        self.process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        self.process.start()
        self.pids = [self.grandparent.pid, int(self.grandparent.stdout.readline()), self.process.pid]
        if daemons:
            own_session = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
            daemon = subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, close_fds=True)
            self.pids += [own_session.pid, int(daemon.stdout)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(1, np.float32), 0.0, False, False, {}


class Quiet(Nested):
    """Without what leaves the worker's session: that is found only where there is a zygote, or the worker lives."""

    def __init__(self) -> None:
        super().__init__(daemons=False)


class Segment(gymnasium.Env):
    """Has a named segment, which CPython's resource tracker removes when the processes that know of it have ended."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.segment = shared_memory.SharedMemory(create=True, size=64)
        self.name = self.segment.name


@pytest.fixture(autouse=True)
def until_all_are_collected(descendants: Callable[[], set[int]]) -> Iterator[None]:
    """A zygote collects what a worker has left behind as soon as it has ended, which a test may be faster than."""
    before = descendants()
    yield
    await_that(lambda: not descendants() - before, "the end of what the test's workers had started")


def watched(envs: shoal.VectorEnv) -> list[int]:
    """pidfds of all that the environments have started."""
    return [os.pidfd_open(pid) for pids in envs.get_attr("pids") for pid in pids]


def assert_ended(pidfds: list[int]) -> None:
    try:
        await_ended(pidfds)
    finally:
        for fd in pidfds:
            os.close(fd)


@pytest.mark.parametrize(
    ("context", "env"),
    [("forkserver", Nested), ("spawn", Quiet), pytest.param("fork", Quiet, marks=pytest.mark.own_process)],
    ids=["forkserver", "spawn", "fork"],
)
def test_nothing_is_left_of_a_worker_that_is_closed(context: str, env: Callable[[], Any]) -> None:
    envs = shoal.make_vec(env, 2, num_workers=2, context=context)
    envs.reset()
    pidfds = watched(envs)
    envs.close()
    assert_ended(pidfds)


@pytest.mark.parametrize(
    ("context", "env"),
    [("forkserver", Nested), ("spawn", Quiet), pytest.param("fork", Quiet, marks=pytest.mark.own_process)],
    ids=["forkserver", "spawn", "fork"],
)
def test_nothing_is_left_of_a_worker_that_is_killed(context: str, env: Callable[[], Any]) -> None:
    envs = shoal.make_vec(env, 2, num_workers=2, context=context, on_fault="restart")
    envs.reset()
    pids = envs.get_attr("pids")
    gone, staying = ([os.pidfd_open(pid) for pid in own] for own in (pids[1], pids[0]))
    envs.step([0, 1])
    assert_ended(gone)
    assert all(Path(f"/proc/{pid}/fd").exists() for pid in pids[0])  # the other worker keeps its own
    envs.close()
    assert_ended(staying)


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_of_the_workers_of_environments_that_are_stepped_one_by_one(killed: bool) -> None:
    envs: Any = shoal.make_vec(Nested, 2, num_workers=2, batch_size=1, on_fault="restart")
    envs.reset()
    pids = envs.get_attr("pids")
    gone, staying = ([os.pidfd_open(pid) for pid in own] for own in (pids[1], pids[0]))
    if killed:
        envs.send([1], [1])
        envs.recv(timeout=60)
        assert_ended(gone)
        gone = []
        assert all(Path(f"/proc/{pid}/fd").exists() for pid in pids[0])
    envs.close()
    assert_ended([*gone, *staying])


def test_nothing_is_left_when_the_zygote_is_killed() -> None:
    with_zygote = shoal.make_vec(Quiet, 2, num_workers=2)
    with_zygote.reset()
    pidfds = watched(with_zygote)
    for launcher in sys.modules["shoal.process._launcher"]._launchers.values():
        if launcher.zygote_pid:
            os.kill(launcher.zygote_pid, signal.SIGKILL)
    assert_ended(pidfds)
    with pytest.raises(shoal.WorkerDied):
        while True:
            with_zygote.step([0, 0])
    with_zygote.close()


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_nothing_is_left_when_the_parent_is_killed(context: str, stopped: bool) -> None:
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *[path for path in sys.path if path]]!r}\n"
        "import shoal, test_nested_processes as here\n"
        f"envs = shoal.make_vec(here.Nested, 2, num_workers=2, context={context!r}); envs.reset()\n"
        "workers = [worker['pid'] for worker in envs.health()]\n"
        "print(*workers, *[pid for pids in envs.get_attr('pids') for pid in pids], flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    pidfds = [os.pidfd_open(pid) for pid in pids]
    assert len(pidfds) == 12
    if stopped:
        os.kill(pids[0], signal.SIGSTOP)
    parent.kill()
    assert_ended(pidfds)
    parent.communicate()


@pytest.mark.parametrize("context", ["forkserver", "spawn", "fork"])
def test_what_is_left_of_a_killed_parents_workers_can_clean_up(context: str) -> None:
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *[path for path in sys.path if path]]!r}\n"
        "import shoal, test_nested_processes as here\n"
        f"envs = shoal.make_vec(here.Segment, 1, num_workers=1, backend='process', context={context!r})\n"
        "print(*envs.get_attr('name'), flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    segment = Path("/dev/shm") / parent.stdout.readline().strip()
    assert segment.is_file()
    parent.kill()
    await_that(lambda: not segment.exists(), f"the removal of {segment}")
    parent.communicate()
