"""kill -9 of any process of the tree, zygote and sub-zygotes included: stepping goes on, and each kill is one fault.

A policy that forgives exactly as many faults as there are kills is how the tests see that none counts twice.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal


class Env(gymnasium.Env):
    observation_space = spaces.Box(0, 9, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(3, np.float32), 1.0, False, False, {}


def zygote() -> int:
    """Process id of the only one."""
    launchers = sys.modules["shoal.process._launcher"]._launchers.values()
    (pid,) = {launcher.zygote_pid for launcher in launchers if launcher.zygote_pid}
    return pid


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def sub_zygotes() -> list[int]:
    """Children of the zygote that have children: each of the workers started none."""
    return [pid for pid in children(zygote()) if children(pid)]


class Tree:
    """Vector environments whose processes are killed."""

    def __init__(self, way: str, num_workers: int, kills: int, **options: Any) -> None:
        policy = shoal.FaultPolicy("restart", max_restarts=kills, restart_window=3600, backoff=0.001, max_backoff=0.001)
        self.pool = shoal.WorkerPool(num_workers) if way == "pool" else None
        if self.pool:
            options["pool"] = self.pool
        else:
            options["num_workers"] = num_workers
        if way == "arrival":
            options["batch_size"] = num_workers  # stepped one by one, all of them a batch
        self.envs: Any = shoal.make_vec(Env, num_workers, on_fault=policy, **options)
        self.envs.reset(seed=0)
        self.faults: list[shoal.Fault] = []

    def step(self) -> bool:
        """One of all environments; whether all of them are there."""
        infos = self.envs.step(np.zeros(self.envs.num_envs, np.int64))[-1]
        found = [fault for fault in infos.get("fault", ()) if fault is not None]
        self.faults += found
        return not found and "down" not in infos

    def step_until_all_are_back(self, known: int) -> list[shoal.Fault]:
        """The faults from `known` on: at least one, then until everybody is there."""
        while len(self.faults) == known:
            self.step()
        while not self.step():
            pass
        return self.faults[known:]

    def close(self) -> None:
        self.envs.close()
        if self.pool:
            self.pool.close()


@pytest.fixture
def tree() -> Iterator[Callable[..., Tree]]:
    shoal.process.close_launchers()  # no zygote but this test's
    made: list[Tree] = []

    def make(*arguments: Any, **options: Any) -> Tree:
        made.append(Tree(*arguments, **options))
        return made[-1]

    yield make
    for tree in made:
        tree.close()
    shoal.process.close_launchers()


ways = pytest.mark.parametrize("way", ["all", "arrival", "pool"])
sizes = pytest.mark.parametrize("num_workers", [4, 16])


@ways
@sizes
@pytest.mark.timeout(3600)
def test_stepping_goes_on_whatever_process_is_killed(
    tree: Callable[..., Tree], rounds: int, way: str, num_workers: int
) -> None:
    running = tree(way, num_workers, rounds)
    for turn in range(rounds):
        dice = random.Random(f"{way} {num_workers} {turn}")
        before, known = zygote(), len(running.faults)
        workers = [worker["pid"] for worker in running.envs.health()]
        victim = before if turn % 2 == 0 else dice.choice(workers)
        for _ in range(dice.randrange(20)):
            running.step()
        os.kill(victim, signal.SIGKILL)
        faults = running.step_until_all_are_back(known)
        assert {fault.number for fault in faults} == {turn + 1}
        assert {fault.kind for fault in faults} == {"killed"}
        if victim == before:
            assert {fault.worker for fault in faults} == set(range(num_workers))
            assert zygote() != before
            why = f"ended with its zygote (pid {victim}), which ended with signal 9 (SIGKILL)"
            assert all(why in fault.message for fault in faults)
        else:
            assert zygote() == before
            assert {(fault.pid, fault.signal) for fault in faults} == {(victim, signal.SIGKILL)}


@ways
@sizes
@pytest.mark.timeout(3600)
def test_nobody_waits_between_the_kills(tree: Callable[..., Tree], rounds: int, way: str, num_workers: int) -> None:
    """Zygotes die while they import, workers while they build: each kill is one fault at most."""
    kills = 2 * rounds
    running = tree(way, num_workers, kills)
    dice = random.Random(f"{way} {num_workers}")
    for _ in range(kills):
        pids = [worker["pid"] for worker in running.envs.health() if worker["pid"]]
        launchers = sys.modules["shoal.process._launcher"]._launchers.values()
        pids += 2 * [launcher.zygote_pid for launcher in launchers if launcher.zygote_pid]
        if pids:
            try:
                os.kill(dice.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it went with a zygote
        for _ in range(dice.randrange(1, 30)):
            running.step()
    while not (all(running.step() for _ in range(3)) and all(worker["pid"] for worker in running.envs.health())):
        pass
    assert max(fault.number for fault in running.faults) <= kills


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that leaves a zygote so few descriptors that it needs sub-zygotes."""
    (tmp_path / "narrow_zygote.py").write_text(
        "import os, resource\n"
        "used = len(os.listdir('/proc/self/fd'))\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12 + 2 * 6, hard))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "narrow_zygote"


@pytest.mark.parametrize("way", ["all", "arrival"])
@pytest.mark.timeout(3600)
def test_stepping_goes_on_when_a_sub_zygote_is_killed(
    tree: Callable[..., Tree], rounds: int, way: str, narrow: str
) -> None:
    running = tree(way, 16, rounds, worker=shoal.WorkerOptions(preload=[narrow]))
    for turn in range(rounds):
        before, known = zygote(), len(running.faults)
        of_it = sub_zygotes()
        assert of_it
        victim = random.Random(f"{way} {turn}").choice(of_it)
        os.kill(victim, signal.SIGKILL)
        faults = running.step_until_all_are_back(known)
        assert {fault.number for fault in faults} == {turn + 1}
        assert {fault.worker for fault in faults} == set(range(16))
        why = f"ended with its zygote (pid {before}), whose sub-zygote (pid {victim}) ended with signal 9 (SIGKILL)"
        assert all(why in fault.message for fault in faults)


@pytest.mark.parametrize("way", ["all", "arrival"])
def test_raise_names_the_zygote_and_drop_tells_of_one_fault(way: str) -> None:
    options: dict[str, Any] = {"batch_size": 5} if way == "arrival" else {}
    for on_fault, error in (("raise", shoal.WorkerDied), ("drop", shoal.TooManyFaults)):
        shoal.process.close_launchers()
        envs: Any = shoal.make_vec(Env, 5, num_workers=5, on_fault=on_fault, **options)
        envs.reset(seed=0)
        os.kill(pid := zygote(), signal.SIGKILL)
        with pytest.raises(error) as caught:
            while True:
                envs.step(np.zeros(5, np.int64))
        text = str(caught.value)
        assert f"ended with its zygote (pid {pid}), which ended with signal 9 (SIGKILL) and takes its workers" in text
        if on_fault == "drop":
            assert [fault.number for fault in caught.value.faults] == [1]
        else:
            assert caught.value.exitcode is None  # nobody could collect it
        envs.close()
