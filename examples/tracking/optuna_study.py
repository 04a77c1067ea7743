"""A search for PPO's learning rate and entropy bonus with Optuna, which ends trials that lag behind. Needs `pip install optuna`.

python examples/tracking/optuna_study.py [--trials 20] [--steps 30000]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import optuna

import shoal


def objective(trial: optuna.Trial, steps: int, runs: Path) -> float:
    def watch(status: dict[str, Any]) -> None:
        """What it raises stops the run."""
        if status["ep_return_mean"] is None:
            return
        trial.report(status["ep_return_mean"], status["iteration"])
        if trial.should_prune():
            raise optuna.TrialPruned

    result = shoal.learn.train(
        "CartPole-v1",
        "ppo",
        total_steps=steps,
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        entropy_coef=trial.suggest_float("entropy_coef", 1e-4, 0.1, log=True),
        run_dir=runs / str(trial.number),
        callback=watch,
    )
    assert result.mean_return is not None
    return result.mean_return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30_000)
    arguments = parser.parse_args()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    with tempfile.TemporaryDirectory() as runs:
        study.optimize(lambda trial: objective(trial, arguments.steps, Path(runs)), n_trials=arguments.trials)
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} ended early; best mean return {study.best_value:.1f}")
    print({name: float(f"{value:.3g}") for name, value in study.best_params.items()})


if __name__ == "__main__":
    main()
