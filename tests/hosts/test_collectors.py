"""APPO whose collector is in another network namespace than its learner trains CartPole-v1 to 475."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import namespaces
import pytest

REASON = namespaces.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
SOLVED = 475


def test_a_learner_and_a_collector_on_two_hosts_train_cartpole_to_475(tmp_path: Path) -> None:
    shoal = [sys.executable, "-m", "shoal.cli"]
    environment = {**os.environ, "SHOAL_GROUP_SECRET": "known to both"}
    with namespaces.Namespaces(2, gbit=1) as hosts:
        address = f"{hosts.address(0)}:7000"
        collect = hosts.command(1, [*shoal, "collect", address, "--num-workers", "0", "--wait", "60"])
        with subprocess.Popen(collect, env=environment, stdout=subprocess.PIPE, text=True) as collector:
            options = [
                "--algorithm",
                "appo",
                "--listen",
                address,
                "--seed",
                "1",
                "--quiet",
                "--run-dir",
                str(tmp_path / "run"),
            ]
            train = hosts.command(0, [*shoal, "train", "CartPole-v1", *options])
            done = subprocess.run(train, env=environment, capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, done.stdout + done.stderr
            said, _ = collector.communicate(timeout=60)
    assert collector.returncode == 0
    assert "the run is over" in said
    assert json.loads((tmp_path / "run/result.json").read_text())["mean_return"] >= SOLVED
