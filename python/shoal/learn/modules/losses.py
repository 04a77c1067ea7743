"""What the rows of a minibatch cost: the losses of PPO and A2C, as means over the rows."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Losses", "Minibatch", "a2c_loss", "clipped_value_loss", "ppo_loss", "total"]


class Minibatch(NamedTuple):
    """What was known of its rows before the update, [rows] each; log_prob and value are those of the rollout."""

    log_prob: torch.Tensor
    value: torch.Tensor
    advantage: torch.Tensor
    returns: torch.Tensor


class Losses(NamedTuple):
    """`value` is before its coefficient; approx_kl and clip_fraction are of PPO alone."""

    policy: torch.Tensor
    value: torch.Tensor
    approx_kl: torch.Tensor | None = None
    clip_fraction: torch.Tensor | None = None


def ppo_loss(
    log_prob: torch.Tensor,
    value: torch.Tensor,
    rows: Minibatch,
    clip_range: float,
    clip_range_value: float | None = None,
    pessimistic_value_clip: bool = True,
) -> Losses:
    """Of the clipped surrogate (Schulman et al., 2017, arXiv:1707.06347); approx_kl is the mean of (r - 1) - log r."""
    log_ratio = log_prob - rows.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    policy = torch.max(-rows.advantage * ratio, -rows.advantage * clipped).mean()
    with torch.no_grad():
        approx_kl = ((ratio - 1) - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip_range).float().mean()
    if clip_range_value is None:
        of_value = (value - rows.returns).square().mean()
    else:
        of_value = clipped_value_loss(value, rows, clip_range_value, pessimistic_value_clip)
    return Losses(policy, of_value, approx_kl, clip_fraction)


def clipped_value_loss(value: torch.Tensor, rows: Minibatch, clip_range: float, pessimistic: bool) -> torch.Tensor:
    """The error of a value that may move by clip_range; pessimistic: where that is less, the error as it is."""
    clipped = rows.value + (value - rows.value).clamp(-clip_range, clip_range)
    error = (clipped - rows.returns).square()
    return (torch.max(error, (value - rows.returns).square()) if pessimistic else error).mean()


def a2c_loss(log_prob: torch.Tensor, value: torch.Tensor, rows: Minibatch) -> Losses:
    """Of advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783)."""
    return Losses(-(rows.advantage * log_prob).mean(), (value - rows.returns).square().mean())


def total(losses: Losses, entropy: torch.Tensor | None, value_coef: float, entropy_coef: float) -> torch.Tensor:
    loss = losses.policy + value_coef * losses.value
    return loss if entropy is None or entropy_coef == 0 else loss - entropy_coef * entropy
