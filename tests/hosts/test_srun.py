"""`srun -N 2` in a Slurm of two nodes, which are two network namespaces of this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import namespaces
import pytest
import slurm_in_a_box
from slurm_in_a_box import Slurm

REASON = namespaces.why_not() or slurm_in_a_box.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def test_two_nodes_train_cartpole_to_475(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "shoal.cli", "train", "CartPole-v1", "--seed", "1", "--quiet"]
    with namespaces.Namespaces(2, gbit=1) as hosts, Slurm(hosts) as slurm:
        done = slurm.run(
            ["srun", "-N", "2", "-n", "2", "--kill-on-bad-exit=1", *command, "--run-dir", str(run)],
            SHOAL_GROUP_SECRET="known to both",
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((run / "result.json").read_text())["mean_return"] >= 475
