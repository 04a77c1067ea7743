"""RLlib's PPO, whose environment runner steps Shoal's vector environment.

    pip install 'shoal[ray]'
    python examples/rllib/main.py [--envs shoal|rllib] [--num-envs 8] [--num-workers 2] [--runners 0] [--iterations 3]

A runner asks one function for all of its environments. With `--envs rllib` it makes Gymnasium's own vector environment instead, in
the runner's process: for the same seed both print the same.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import gymnasium
import ray
import torch
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.tune import register_env

import shoal

ENV_ID = "CartPole-v1"


def make_envs(context: dict[str, Any], num_workers: int) -> gymnasium.vector.VectorEnv:
    """RLlib stores what a step returns beside the episode that it belongs to: an episode that has ended is reset by the next step,
    which is make_vec's default."""
    return shoal.make_vec(ENV_ID, context["num_envs"], num_workers=num_workers)


def algorithm(envs: str, num_envs: int, num_workers: int, runners: int, seed: int) -> PPO:
    register_env("shoal", functools.partial(make_envs, num_workers=num_workers))
    config = (
        PPOConfig()
        .environment("shoal" if envs == "shoal" else ENV_ID)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=num_envs,
            rollout_fragment_length=64,
            gym_env_vectorize_mode="vector_entry_point" if envs == "shoal" else "sync",
        )
        .training(
            train_batch_size_per_learner=64 * num_envs * max(runners, 1), minibatch_size=128, num_epochs=4, lr=1e-3
        )
        .debugging(seed=seed, log_level="ERROR")
    )
    return config.build_algo()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", default="shoal", choices=["shoal", "rllib"])
    parser.add_argument("--num-envs", type=int, default=8, help="of a runner")
    parser.add_argument(
        "--num-workers", type=int, default=2, help="worker processes of a runner; 0 steps in the runner itself"
    )
    parser.add_argument(
        "--runners", type=int, default=0, help="processes of RLlib that step environments; 0: this one does"
    )
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)
    ray.init(num_cpus=options.runners + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    trainer = algorithm(options.envs, options.num_envs, options.num_workers, options.runners, options.seed)
    for _ in range(options.iterations):
        told = trainer.train()["env_runners"]
        steps, mean = told["num_env_steps_sampled_lifetime"], told["episode_return_mean"]
        print(f"{steps:.0f} steps, {told['num_episodes_lifetime']:.0f} episodes, mean return {mean:.4f}")
    trainer.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
