"""A zygote that dies takes its workers with it; what follows waits for the next one's preload no longer than it was told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from written_modules import written_modules

gated = written_modules(
    gated="import pathlib, time\nwhile pathlib.Path(__file__).with_name('shut').exists():\n    time.sleep(0.01)\n"
)


def kill_zygote() -> None:
    launchers = sys.modules["shoal.process._launcher"]._launchers.values()
    (pid,) = {launcher.zygote_pid for launcher in launchers if launcher.zygote_pid}
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def alone() -> None:
    """No zygote but that of the test."""
    shoal.process.close_launchers()


def environments(**way: Any) -> Any:
    worker = shoal.WorkerOptions(preload=["gated"])
    return shoal.make_vec("CartPole-v1", 2, num_workers=2, on_fault="restart", worker=worker, **way)


def test_a_step_keeps_its_deadline_while_the_next_zygote_preloads(alone: None, gated: Any, tmp_path: Path) -> None:
    envs = environments()
    envs.reset(seed=0)
    (tmp_path / "shut").touch()
    kill_zygote()
    lost = set[int]()
    while len(lost) < 2:
        infos = envs.step([0, 0])[-1]
        lost |= {i for i in range(2) if "fault" in infos and infos["fault"][i] is not None}
    envs.step_async([0, 0])
    with pytest.raises(TimeoutError, match="no environment has come back in time"):
        envs.step_wait(timeout=0.2)
    (tmp_path / "shut").unlink()
    while "down" in envs.step_wait()[-1]:
        envs.step_async([0, 0])
    assert [worker["restarts"] for worker in envs.health()] == [1, 1]
    envs.close()


def test_recv_keeps_its_deadline_while_the_next_zygote_preloads(alone: None, gated: Any, tmp_path: Path) -> None:
    envs = environments(batch_size=1)
    envs.reset(seed=0)
    (tmp_path / "shut").touch()
    kill_zygote()
    envs.send([0, 0], [0, 1])
    lost = set[int]()
    while len(lost) < 2:
        infos = envs.recv()[-1]
        if "fault" in infos:
            lost |= set(infos["env_id"].tolist())
        else:
            envs.send([0], infos["env_id"])
    envs.send([0, 0], [0, 1])
    with pytest.raises(TimeoutError, match="environments 0 .* and 1"):
        envs.recv(timeout=0.2)
    (tmp_path / "shut").unlink()
    assert sorted(int(envs.recv()[-1]["env_id"][0]) for _ in range(2)) == [0, 1]
    assert [worker["restarts"] for worker in envs.health()] == [1, 1]
    envs.close()
