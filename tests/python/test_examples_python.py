"""The Python examples run as their pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("context", ["serial", "fork", "forkserver", "spawn"])
def test_server_per_worker(context: str) -> None:
    command = [sys.executable, str(EXAMPLES / "server_per_worker" / "main.py"), context]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "worlds: ['ice'], ports: 4 different ones",
        f"workers: {1 if context == 'serial' else 2}, episodes: 24 in all",
        "the goal was reached first in one of the episodes 1 to 4: True",
    ]
