"""Stable-Baselines3's PPO on CartPole-v1 with rl-baselines3-zoo's tuned settings, until it is solved.

Run by benchmarks/time_to_solve.py with the peers' interpreter; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


def linear(initial: float) -> Callable[[float], float]:
    return lambda remaining: remaining * initial


class UntilSolved(BaseCallback):
    """Every `every` steps: `few` episodes; when their mean reaches the target, `many` fresh ones that have to as well."""

    def __init__(self, target: float, every: int, few: int, many: int, seed: int) -> None:
        super().__init__()
        self._target = target
        self._every = every
        self._few = few
        self._many = many
        self._envs = make_vec_env("CartPole-v1", n_envs=few, seed=seed + 1_000_000)
        self._next = every
        self.solved: float | None = None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        # Between two updates, as Shoal evaluates: the policy is that of the last update.
        if self.num_timesteps >= self._next and self.solved is None:
            self._next = self.num_timesteps - self.num_timesteps % self._every + self._every
            if self._mean(self._few) >= self._target:
                mean = self._mean(self._many)
                self.solved = mean if mean >= self._target else None
        if self.solved is not None:
            raise _Solved

    def _mean(self, episodes: int) -> float:
        return float(evaluate_policy(self.model, self._envs, n_eval_episodes=episodes, deterministic=True)[0])


class _Solved(Exception):
    pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--eval-every", type=int, required=True)
    parser.add_argument("--eval-episodes", type=int, required=True)
    parser.add_argument("--final-episodes", type=int, required=True)
    options = parser.parse_args()

    begin = time.perf_counter()
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=options.seed)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=linear(0.001),
        clip_range=linear(0.2),
        seed=options.seed,
        device="cpu",
    )
    until = UntilSolved(options.target, options.eval_every, options.eval_episodes, options.final_episodes, options.seed)
    try:
        model.learn(options.total_steps, callback=until)
    except _Solved:
        pass
    print(
        json.dumps(
            {
                "solved": until.solved is not None,
                "mean_return": until.solved,
                "steps": model.num_timesteps,
                "inner_seconds": time.perf_counter() - begin,
            }
        )
    )


if __name__ == "__main__":
    main()
