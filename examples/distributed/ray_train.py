"""Trains CartPole-v1 on the workers of Ray Train, which are ranks of one run:

    python ray_train.py --workers 2 --storage /shared/ray

Ray places and starts the workers, by the options of its own ScalingConfig, and starts them again when one is lost; they go on from the
checkpoint that was last reported to `--storage`, which all nodes have to see. Needs ray[train], and torch, whose process group Ray makes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import shoal.compat.ray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--storage", type=Path, default=Path("ray-results"))
    options = parser.parse_args()
    config = {"env": "CartPole-v1", "seed": 1}
    if options.total_steps is not None:
        config["total_steps"] = options.total_steps
    trainer = TorchTrainer(
        shoal.compat.ray.train_loop,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=options.workers),
        run_config=RunConfig(
            storage_path=str(options.storage.absolute()), failure_config=FailureConfig(max_failures=3)
        ),
    )
    result = trainer.fit()
    print(f"{result.metrics['steps']:,} steps: mean return {result.metrics['eval_return_mean']:.1f}")
    print(f"policy: {result.checkpoint.path}")


if __name__ == "__main__":
    main()
