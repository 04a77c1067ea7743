"""What was measured, under the names of Stable-Baselines3 and CleanRL, as src/shoal/learn/run/scalars.cc has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["of_evaluation", "of_iteration"]


def of_iteration(
    stats: Mapping[str, Any], ended: Sequence[tuple[float, int]], seconds: float, steps_per_second: float
) -> dict[str, float]:
    """`ended`: return and length of the episodes since the last record."""
    values = {
        "rollout/ep_rew_mean": stats["ep_return_mean"],
        "rollout/ep_len_mean": stats["ep_length_mean"],
        "time/fps": steps_per_second,
        "time/iterations": float(stats["iteration"]),
        "time/time_elapsed": seconds,
        "time/total_timesteps": float(stats["step"]),
        "train/approx_kl": stats["approx_kl"],
        "train/clip_fraction": stats["clip_fraction"],
        "train/clip_range": stats["clip_range"],
        "train/entropy_loss": -stats["entropy"],
        "train/explained_variance": stats["explained_variance"],
        "train/grad_norm": stats["grad_norm"],
        "train/learning_rate": stats["learning_rate"],
        "train/loss": stats["loss"],
        "train/policy_gradient_loss": stats["policy_loss"],
        "train/policy_lag": stats["policy_lag"],
        "train/std": math.nan if stats["action_std"] is None else stats["action_std"],
        "train/value_loss": stats["value_loss"],
        "charts/SPS": steps_per_second,
        "charts/learning_rate": stats["learning_rate"],
        "losses/approx_kl": stats["approx_kl"],
        "losses/clipfrac": stats["clip_fraction"],
        "losses/entropy": stats["entropy"],
        "losses/explained_variance": stats["explained_variance"],
        "losses/policy_loss": stats["policy_loss"],
        "losses/value_loss": stats["value_loss"],
    }
    if ended:
        values["charts/episodic_return"] = sum(episode[0] for episode in ended) / len(ended)
        values["charts/episodic_length"] = sum(episode[1] for episode in ended) / len(ended)
    return _numbers(values)


def of_evaluation(evaluation: Mapping[str, Any]) -> dict[str, float]:
    return _numbers(
        {
            "eval/mean_reward": evaluation["mean_return"],
            "eval/std_reward": evaluation["std_return"],
            "eval/mean_ep_length": evaluation["mean_length"],
        }
    )


def _numbers(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not math.isnan(value)}
