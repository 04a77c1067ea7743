"""Processes that stand still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

BOUND = 30


def stop(pid: int) -> None:
    """SIGSTOP. Returns when it has stopped."""
    os.kill(pid, signal.SIGSTOP)
    await_stopped(pid)


def await_stopped(pid: int) -> None:
    """Until each of its threads has stopped, after SIGSTOP: until then they go on."""
    limit = time.monotonic() + BOUND
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < limit, f"process {pid} does not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(") ")[2][0]
