"""Searches over PPO's options with Ray Tune, whose trials are runs of Shoal:

    python ray_tune.py --trials 8 --storage /shared/ray

ASHA ends the trials that are behind. Each checkpoint is the folder of a run. Needs ray[tune].
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ray import tune
from ray.tune.schedulers import ASHAScheduler

import shoal.compat.ray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--storage", type=Path, default=Path("ray-results"))
    options = parser.parse_args()
    trainable = shoal.compat.ray.trainable("CartPole-v1", "ppo", total_steps=options.total_steps, eval_every=0)
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={
            "learning_rate": tune.loguniform(1e-5, 1e-2),
            "num_steps": tune.choice([32, 128]),
            "entropy_coef": tune.choice([0.0, 0.01]),
        },
        tune_config=tune.TuneConfig(
            metric="episode_return_mean",
            mode="max",
            num_samples=options.trials,
            scheduler=ASHAScheduler(
                time_attr="steps", max_t=2 * options.total_steps, grace_period=options.total_steps // 5
            ),
        ),
        run_config=tune.RunConfig(storage_path=str(options.storage.absolute())),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print(f"best of {len(results)}: {best.config}")
    print(f"mean return {shoal.learn.evaluate(best.checkpoint.path, episodes=20).mean_return:.1f}")


if __name__ == "__main__":
    main()
