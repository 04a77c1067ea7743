"""examples/distributed: the workers of Ray Train are ranks of one run, collectors are actors, trials are runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="it is in an environment of its own: ./shoal test --only ray")

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"


def told(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mean_return(out: str) -> float:
    found = re.search(r"mean return ([\d.]+)$", out, re.M)
    assert found is not None, out
    return float(found[1])


@pytest.mark.timeout(300)
def test_two_workers_train_cartpole_to_475(tmp_path: Path) -> None:
    out = told("ray_train", "--workers", "2", "--storage", str(tmp_path))
    assert mean_return(out) >= 475
    policy = re.search(r"^policy: (.+)$", out, re.M)
    assert policy is not None and (Path(policy[1]) / "checkpoints" / "best").is_dir()


@pytest.mark.timeout(300)
def test_two_collectors_train_cartpole_to_475(tmp_path: Path) -> None:
    options = ("--collectors", "2", "--total-steps", "1000000", "--run-dir", str(tmp_path / "run"))
    assert mean_return(told("ray_collectors", *options)) >= 475


@pytest.mark.timeout(300)
def test_a_search_finds_options_that_learn(tmp_path: Path) -> None:
    out = told("ray_tune", "--trials", "2", "--total-steps", "10000", "--storage", str(tmp_path))
    assert "best of 2: {'learning_rate': " in out and mean_return(out) > 9
