"""Stable-Baselines3's PPO or A2C on CartPole-v1 with the settings that it is given, until it is solved.

Run by benchmarks/time_to_solve.py, which names the settings as Shoal does, with the peers' interpreter; prints one line of JSON. With --tell,
by benchmarks/torch_ppo.py: it evaluates nothing, and tells the mean return of the last 100 training episodes after each rollout.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


def scheduled(settings: dict[str, Any], name: str) -> float | Callable[[float], float]:
    """A number, or what it falls from."""
    value = settings[name]
    if settings[f"{name}_schedule"] == "linear":
        return lambda remaining: remaining * value
    return value


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


class Tells(BaseCallback):
    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        episodes = self.model.ep_info_buffer
        if episodes:
            mean = sum(episode["r"] for episode in episodes) / len(episodes)
            print(f"{self.num_timesteps} steps: mean return {mean:.1f}", flush=True)


def learner(settings: dict[str, Any], seed: int) -> BaseAlgorithm:
    envs = make_vec_env("CartPole-v1", n_envs=settings["num_envs"], seed=seed)
    common = {
        "n_steps": settings["num_steps"],
        "gae_lambda": settings["gae_lambda"],
        "gamma": settings["gamma"],
        "ent_coef": settings["entropy_coef"],
        "learning_rate": scheduled(settings, "learning_rate"),
        "seed": seed,
        "device": "cpu",
    }
    if settings.get("algorithm") == "a2c":
        return A2C(
            "MlpPolicy",
            envs,
            vf_coef=settings["value_coef"],
            max_grad_norm=settings["max_grad_norm"],
            use_rms_prop=settings["optimizer"] == "rmsprop",
            rms_prop_eps=settings["rmsprop_eps"],
            normalize_advantage=settings["advantage_normalization"] != "none",
            **common,
        )
    return PPO(
        "MlpPolicy",
        envs,
        batch_size=settings["batch_size"],
        vf_coef=settings.get("value_coef", 0.5),
        n_epochs=settings["epochs"],
        clip_range=scheduled(settings, "clip_range"),
        **common,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    parser.add_argument("--threads", type=int, help="of torch; its default otherwise")
    parser.add_argument("--target", type=float)
    parser.add_argument("--eval-every", type=int)
    parser.add_argument("--eval-episodes", type=int)
    parser.add_argument("--final-episodes", type=int)
    parser.add_argument("--tell", action="store_true")
    options = parser.parse_args()

    begin = time.perf_counter()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model = learner(options.settings, options.seed)
    if options.tell:
        model.learn(options.settings["total_steps"], callback=Tells())
        return
    until = UntilSolved(options.target, options.eval_every, options.eval_episodes, options.final_episodes, options.seed)
    try:
        model.learn(options.settings["total_steps"], callback=until)
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
