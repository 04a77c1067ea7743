"""What the rows of a rollout were worth: generalised advantage estimation, and V-trace."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Worth", "explained_variance", "gae", "normalized", "vtrace"]


class Worth(NamedTuple):
    """What an estimate reads of a rollout: tensors [steps, envs].

    Attributes:
        value: V(observation that the action was chosen from).
        next_value: V(observation that the step led to, before any reset).
        valid: False where the row is no transition.
    """

    reward: torch.Tensor
    value: torch.Tensor
    next_value: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    valid: torch.Tensor


def gae(
    rows: Worth, gamma: float, gae_lambda: float, bootstrap_truncated: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns (Schulman et al., 2016, arXiv:1506.02438), [steps, envs] each.

        delta[t] = reward[t] + gamma * bootstrap[t] - value[t]
        advantage[t] = delta[t] + gamma * gae_lambda * advantage[t + 1]     within an episode
        returns[t] = advantage[t] + value[t]

    bootstrap[t] is next_value[t], or 0 where the step terminated. Nothing flows across the end of an episode, nor out of a row
    that is not valid, which itself gets advantage 0.
    """
    bootstrap = torch.where(_without_future(rows, bootstrap_truncated), 0.0, rows.next_value)
    delta = torch.where(rows.valid, rows.reward + gamma * bootstrap - rows.value, 0.0)
    flow = gamma * gae_lambda * (~(rows.terminated | rows.truncated) & rows.valid)
    advantage = torch.empty_like(delta)
    later = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        later = delta[t] + flow[t] * later
        advantage[t] = later
    return advantage, advantage + rows.value


def vtrace(
    rows: Worth,
    log_ratio: torch.Tensor,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    bootstrap_truncated: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and targets (Espeholt et al., 2018, arXiv:1802.01561, section 4.1), [steps, envs] each, to a policy other than
    the one that acted.

        rho[t] = min(rho_bar, ratio[t]),  c[t] = gae_lambda * min(c_bar, ratio[t])
        delta[t] = rho[t] * (reward[t] + gamma * V[t + 1] - V[t])
        target[t] = V[t] + delta[t] + gamma * c[t] * (target[t + 1] - V[t + 1])
        advantage[t] = rho[t] * (reward[t] + gamma * target[t + 1] - V[t])

    V[t + 1] is next_value[t], or 0 where the step terminated; where an episode or the rollout ends, it stands for target[t + 1],
    too. A row that is not valid gets advantage 0 and its value as its target.

    Args:
        log_ratio: log of the policy's probability of the action by that with which it was taken.
    """
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_bar), gae_lambda * ratio.clamp(max=c_bar)
    next_value = torch.where(_without_future(rows, bootstrap_truncated), 0.0, rows.next_value)
    delta = rho * (rows.reward + gamma * next_value - rows.value)
    last = rows.terminated | rows.truncated
    last[-1] = True
    last[:-1] |= ~rows.valid[1:]
    target, next_target = torch.empty_like(delta), torch.empty_like(delta)
    later = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        next_target[t] = torch.where(last[t], next_value[t], later)
        later = rows.value[t] + delta[t] + gamma * c[t] * (next_target[t] - next_value[t])
        later = torch.where(rows.valid[t], later, rows.value[t])
        target[t] = later
    advantage = rho * (rows.reward + gamma * next_target - rows.value)
    return torch.where(rows.valid, advantage, 0.0), target


def normalized(advantage: torch.Tensor) -> torch.Tensor:
    """With mean 0 and standard deviation 1 (unbiased, plus 1e-8); fewer than two stay as they are."""
    if advantage.numel() < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def explained_variance(returns: torch.Tensor, value: torch.Tensor) -> float:
    """Of the returns by the values; NaN where the returns do not vary."""
    returns, value = returns.double(), value.double()
    spread = float(returns.var(unbiased=False)) if len(returns) else 0.0
    return 1 - float((returns - value).var(unbiased=False)) / spread if spread > 0 else float("nan")


def _without_future(rows: Worth, bootstrap_truncated: bool) -> torch.Tensor:
    return rows.terminated if bootstrap_truncated else rows.terminated | rows.truncated
