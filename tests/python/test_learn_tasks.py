"""Whole tasks are learned, one for each kind of observation and action: no bar here is reached by chance, or by a learner
whose signs, bookkeeping of episodes or distributions are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from learn_runs import PRECISIONS
from shoal.cli import main

SMALL: dict[str, Any] = {
    "seed": 1,
    "num_envs": 8,
    "num_steps": 32,
    "batch_size": 64,
    "gamma": 0.5,  # answers have no consequences
    "learning_rate": 1e-3,
    "eval_every": 0,
    "eval_envs": 8,
}


def mean_return(task: str, folder: Path, **options: Any) -> float:
    """What a learner of `learn_envs.<task>` earns in the end, of at most 10.

    In an interpreter of its own with one thread: on a machine that is busy, more threads for so small networks cost ten
    times the time.
    """
    options = {"final_episodes": 50, **SMALL, **options, "run_dir": str(folder)}
    program = f"import learn_envs, shoal; shoal.learn.train(learn_envs.{task}, **{options!r})"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=120)
    result = json.loads((folder / "result.json").read_text())
    assert result["steps"] == options["total_steps"]
    return result["mean_return"]


@pytest.mark.parametrize("seed", [1, 2])
def test_gymnasiums_cartpole_by_the_command_of_the_readme(seed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["train", "CartPole-v1", "--seed", str(seed)]) == 0
    assert "CartPole-v1 reached its target after" in capsys.readouterr().out
    (run,) = Path("runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["mean_return"] >= 475
    assert result["evaluated_episodes"] == 100
    assert result["steps"] <= 100_000
    assert shoal.learn.evaluate(run, episodes=20, seed=12).mean_return >= 450


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_task_of_pictures(tmp_path, precision):
    options = {"total_steps": 2048, "epochs": 4, "final_episodes": 20, "precision": precision}
    assert mean_return("Spot", tmp_path / "run", **options) >= 9


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_task_of_pictures_by_dqn(tmp_path, precision):
    options = {
        "precision": precision,
        "algorithm": "dqn",
        "policy_hidden": [],
        "buffer_size": 4000,
        "learning_starts": 200,
        "num_steps": 16,
    }
    exploring = {"exploration_fraction": 0.5, "target_update_interval": 100}
    run = mean_return("Spot", tmp_path / "run", total_steps=3200, final_episodes=20, **options, **exploring)
    assert run >= 9


def test_a_lander_by_dqn(tmp_path):
    pytest.importorskip("Box2D")
    result = shoal.learn.train("LunarLander-v3", "dqn", seed=0, num_workers=0, run_dir=tmp_path / "run")
    assert result.mean_return is not None and result.mean_return >= 200
    assert result.evaluated_episodes == 100 and result.steps < 500_000


def test_a_task_of_continuous_actions(tmp_path):
    assert mean_return("Aim", tmp_path / "run", total_steps=8192, epochs=10) >= 9


def test_a_task_of_several_choices_at_once(tmp_path):
    assert mean_return("Switches", tmp_path / "run", total_steps=8192, epochs=5) >= 9
