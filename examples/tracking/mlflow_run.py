"""Training that MLflow follows. Needs `pip install mlflow`, or mlflow-skinny.

python examples/tracking/mlflow_run.py [--steps 50000]
"""

from __future__ import annotations

import argparse
from typing import Any

import mlflow

import shoal


def log(status: dict[str, Any]) -> None:
    numbers = {name: float(value) for name, value in status.items() if isinstance(value, (int, float))}
    mlflow.log_metrics(numbers, step=status["step"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    steps = parser.parse_args().steps
    with mlflow.start_run():
        mlflow.log_params({"env": "CartPole-v1", "algorithm": "ppo", "total_steps": steps})
        result = shoal.learn.train("CartPole-v1", "ppo", total_steps=steps, callback=log)
        mlflow.log_metric("mean_return", result.mean_return, step=result.steps)
        mlflow.log_artifacts(str(result.run_dir), "run")
        print(f"{result.steps} steps: mean return {result.mean_return:.1f}")


if __name__ == "__main__":
    main()
