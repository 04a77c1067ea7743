"""kill -9 at named points of what follows a fault: while a place backs off, while a successor is built or waits, while a
hung worker is asked for its stack."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from promise import await_ended


class Env(gymnasium.Env):
    """Episodes of five steps; action 1 kills its worker. Notes every process that builds it in a folder, and builds slowly
    while there is a file "slow" in it."""

    observation_space = spaces.Box(0, 5, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        (Path(folder) / f"pid {os.getpid()}").touch()
        while (Path(folder) / "slow").exists():
            time.sleep(0.01)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        return np.full(1, float(self.steps)), 1.0, self.steps == 5, False, {}


def builders(folder: Path) -> set[int]:
    return {int(name.split()[1]) for name in os.listdir(folder) if name.startswith("pid ")}


def successor(envs: shoal.VectorEnv, folder: Path, known: set[int]) -> int:
    """Steps until a new process builds the environment."""
    while not (new := builders(folder) - known):
        envs.step([0])
    return new.pop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", [{}, {"batch_size": 1}], ids=["all", "arrival"])
@pytest.mark.parametrize("point", ["while it builds", "while it waits"])
def test_a_successor_that_is_killed_costs_nothing(
    tmp_path: Path, point: str, way: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    worker = shoal.WorkerOptions(memory_limit=1, memory_hard_limit=2**40)  # everybody is over it
    (tmp_path / "slow").touch() if point == "while it builds" else None
    known = set[int]()
    if point == "while it builds":
        threading.Timer(0.3, (tmp_path / "slow").unlink).start()
    with_limit = shoal.make_vec(
        lambda: Env(str(tmp_path)),
        1,
        num_workers=1,
        backend="process",
        autoreset_mode="disabled",
        worker=worker,
        **way,
    )
    known = builders(tmp_path)
    with_limit.reset(seed=0)
    if point == "while it builds":
        (tmp_path / "slow").touch()
    pid = successor(with_limit, tmp_path, known)
    if point == "while it waits":
        for _ in range(2000):  # with autoreset disabled it waits for an explicit reset
            with_limit.step([0])
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await_ended([pidfd])
    os.close(pidfd)
    while "its successor failed" not in caplog.text:  # until its death is known here
        with_limit.step([0])
    (tmp_path / "slow").unlink(missing_ok=True)
    for _ in range(20):
        assert "fault" not in with_limit.step([0])[-1]
    with_limit.reset(seed=1)
    health = with_limit.health()[0]
    assert health["pid"] != pid and health["recycles"] == 0 and health["last_fault"] is None
    with_limit.close()


@pytest.mark.timeout(120)
def test_a_worker_that_is_killed_while_it_is_asked_for_its_stack(tmp_path: Path) -> None:
    policy = shoal.FaultPolicy("restart", step_timeout=0.2)
    envs = shoal.make_vec(lambda: Env(str(tmp_path)), 2, num_workers=2, on_fault=policy)
    envs.reset(seed=0)
    pid = envs.health()[1]["pid"]
    os.kill(pid, signal.SIGSTOP)  # it does not answer, so that it is asked for long

    def kill_when_asked() -> None:
        while envs.health()[1]["state"] != "hung":
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_asked)
    killer.start()
    fault = envs.step([0, 0])[-1]["fault"][1]
    killer.join()
    assert fault.kind == "hang" and fault.signal == signal.SIGKILL
    while "down" in envs.step([0, 0])[-1]:
        pass
    envs.close()


@pytest.mark.timeout(120)
def test_a_parent_that_is_killed_while_a_place_backs_off_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), *[path for path in sys.path if path]]!r}
import shoal, test_fault_points as here
policy = shoal.FaultPolicy("restart", backoff=60, max_backoff=60)
envs = shoal.make_vec(lambda: here.Env({str(tmp_path)!r}), 2, num_workers=2, on_fault=policy)
envs.reset(seed=0)
envs.step([0, 1])
while "down" in envs.step([0, 0])[-1]: pass
envs.step([0, 1])
assert envs.health()[1]["state"] == "restarting"
zygotes = [launcher.zygote_pid for launcher in sys.modules["shoal.process._launcher"]._launchers.values()]
print(envs.health()[0]["pid"], *zygotes, flush=True)
while True: envs.step([0, 0])
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    left = {os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()}
    assert len(left) == 2
    parent.kill()
    await_ended(left)
    for fd in left:
        os.close(fd)
    parent.communicate()
