"""kill -9 at named points of a queue's put and get: nobody hangs, nothing comes twice, no block is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(3600)
def test_producers_and_consumers_that_are_killed_cost_what_they_had_in_hand(rounds: int) -> None:
    program = Path(__file__).with_name("queue_chaos.py")
    done = subprocess.run([sys.executable, str(program), str(rounds)], capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
