"""kill -9 of clients and servers of a model service, at named points and at random moments: nobody hangs, nobody gets
another's answer or one of mixed weights, and nothing of the dead stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(3600)
def test_clients_and_servers_that_are_killed_hold_up_nobody(rounds: int) -> None:
    program = Path(__file__).with_name("serve_chaos.py")
    command = [sys.executable, str(program), str(4 * rounds), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3500)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
