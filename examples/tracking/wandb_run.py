"""Training that Weights & Biases follows. Needs `pip install wandb`; without an account, WANDB_MODE=offline.

python examples/tracking/wandb_run.py [--steps 50000]
"""

from __future__ import annotations

import argparse
from typing import Any

import wandb

import shoal


def log(status: dict[str, Any]) -> None:
    numbers = {name: value for name, value in status.items() if isinstance(value, (int, float))}
    wandb.log(numbers, step=status["step"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50_000)
    steps = parser.parse_args().steps
    with wandb.init(project="shoal", config={"env": "CartPole-v1", "algorithm": "ppo", "total_steps": steps}) as run:
        result = shoal.learn.train("CartPole-v1", "ppo", total_steps=steps, callback=log)
        run.summary["mean_return"] = result.mean_return
        run.save(str(result.run_dir / "config.json"), base_path=result.run_dir)
        print(f"{result.steps} steps: mean return {result.mean_return:.1f}")


if __name__ == "__main__":
    main()
