"""The kernel kills for want of memory: in a control group of the test's own, so nobody else is in danger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from promise import await_that

LIMIT = 512 << 20

HIERARCHIES = (  # of version 1, of version 2: where, the limit, and what keeps swap out of it
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", {"memory.swappiness": "0"}),
    (Path("/sys/fs/cgroup"), "memory.max", {"memory.swap.max": "0", "memory.oom.group": "0"}),
    (Path("/sys/fs/cgroup/unified"), "memory.max", {"memory.swap.max": "0", "memory.oom.group": "0"}),
)

IN_GROUP = 'echo $$ > "$0"/cgroup.procs && exec "$@"'


class Hungry(gymnasium.Env):
    """Action 1 takes memory until the kernel kills it; action 2 is a kill -9 of somebody's."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        taken = []
        while action == 1:
            taken.append(b"x" * (16 << 20))
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(1, np.float32), 0.0, False, False, {}


def is_empty(folder: Path) -> bool:
    return not (folder / "cgroup.procs").read_text()


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a limit of memory."""
    reasons = []
    for root, limit, others in HIERARCHIES:
        folder = root / f"shoal-test-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir()
        except OSError as error:
            reasons.append(str(error))
            continue
        try:
            (folder / limit).write_text(str(LIMIT))
            for name, value in others.items():
                if (folder / name).exists():
                    (folder / name).write_text(value)
            entered = subprocess.run(["sh", "-c", IN_GROUP, str(folder), "true"], capture_output=True, text=True)
            if entered.returncode == 0:
                yield folder
                return
            reasons.append(entered.stderr.strip())
        except OSError as error:
            reasons.append(str(error))
        finally:
            await_that(lambda folder=folder: is_empty(folder), "the end of all processes of the group")
            folder.rmdir()
    pytest.skip("no control group with a limit of memory can be made here: " + "; ".join(reasons))


def faults(envs: Any, actions: list[int]) -> list[shoal.Fault]:
    """Those of one step, and until everybody is there again."""
    infos = envs.step(np.array(actions))[-1]
    found = [fault for fault in infos.get("fault", ()) if fault is not None]
    while "down" in infos or "fault" in infos:
        infos = envs.step(np.zeros(len(actions), np.int64))[-1]
    return found


def play(**way: Any) -> None:
    """In the group: a kill by the kernel, a kill by somebody, and one by the kernel again."""
    policy = shoal.FaultPolicy("restart", max_restarts=3, backoff=0.001, max_backoff=0.001)
    envs = shoal.make_vec(Hungry, 2, num_workers=2, on_fault=policy, **way)
    envs.reset(seed=0)
    found = [fault for actions in ([0, 1], [2, 0], [1, 0]) for fault in faults(envs, actions)]
    print(json.dumps([(fault.kind, fault.signal, fault.env, fault.message) for fault in found]))
    envs.close()


@pytest.mark.parametrize("way", [{}, {"batch_size": 2}], ids=["all", "arrival"])
def test_a_kill_by_the_kernel_is_told_as_such(group: Path, way: dict[str, Any]) -> None:
    program = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *[path for path in sys.path if path]]!r}\n"
        f"import test_oom\ntest_oom.play(**{way!r})\n"
    )
    command = ["sh", "-c", IN_GROUP, str(group), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [kind for kind, *_ in told] == ["memory", "killed", "memory"], told
    assert all(env in (0, 1) for _, _, env, _ in told)
    assert all(number == signal.SIGKILL for _, number, _, _ in told)
    for text in (told[0][3], told[2][3]):
        assert "the kernel killed it for want of memory, as it seems: oom_kill of " in text and group.name in text
    assert "memory" not in told[1][3]


def test_a_kill_by_the_kernel_elsewhere_is_no_evidence(group: Path) -> None:
    envs = shoal.make_vec(Hungry, 2, num_workers=2, on_fault="restart")
    envs.reset(seed=0)
    hog = "taken = []\nwhile True: taken.append(b'x' * (16 << 20))"
    elsewhere = subprocess.run(["sh", "-c", IN_GROUP, str(group), sys.executable, "-c", hog], timeout=110)
    assert elsewhere.returncode == -signal.SIGKILL
    (fault,) = faults(envs, [0, 2])
    assert (fault.kind, fault.signal) == ("killed", signal.SIGKILL)
    assert "want of memory" not in fault.message
    envs.close()
