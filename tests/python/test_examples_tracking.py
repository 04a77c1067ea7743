"""Trackers and searches that follow training. `shoal test --only tracking` brings them; where one is missing, its test is skipped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/tracking"
TOLD = r"(10240|10[0-9]{3}) steps: mean return \d+\.\d"


def run(folder: Path, script: str, *arguments: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_weights_and_biases_has_what_the_run_measured(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    told = run(tmp_path, "wandb_run.py", "--steps", "10000", WANDB_MODE="offline", WANDB_SILENT="true")
    assert re.fullmatch(TOLD, told[-1])
    (recorded,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"ep_return_mean" in recorded.read_bytes()


def test_mlflow_has_what_the_run_measured(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    files = {"MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}  # no server
    told = run(tmp_path, "mlflow_run.py", "--steps", "10000", **files)
    assert re.fullmatch(TOLD, told[-1])
    (metric,) = (tmp_path / "mlruns").glob("*/*/metrics/ep_return_mean")
    steps = [int(line.split()[2]) for line in metric.read_text().splitlines()]
    assert steps == sorted(steps) and steps[-1] <= 10_240
    (config,) = (tmp_path / "mlruns").glob("*/*/artifacts/run/config.json")
    assert json.loads(config.read_text())["format"] == "shoal.run"


def test_optuna_ends_trials_and_finds_the_best(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    trials, best = run(tmp_path, "optuna_study.py", "--trials", "7", "--steps", "10000")
    told = re.fullmatch(r"7 trials, (\d+) ended early; best mean return (\d+\.\d)", trials)
    assert told and float(told[2]) > 9
    assert {"learning_rate", "entropy_coef"} == set(json.loads(best.replace("'", '"')))
