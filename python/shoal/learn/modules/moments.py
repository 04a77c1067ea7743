"""Running means and variances: what normalises observations and rewards, as `src/shoal/collect` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from shoal.learn.spaces import Leaf

__all__ = ["ObsNormalizer", "RewardScaler", "RunningMoments"]

_FIRST_COUNT = 1e-4
_FLOOR = 1e-8


class RunningMoments(nn.Module):
    """Mean 0 and variance 1 with a weight of 1e-4 samples until there are real ones; merged batch by batch (Chan et al., 1979)."""

    mean: torch.Tensor
    var: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("var", torch.ones(size, dtype=torch.float64))
        self.register_buffer("count", torch.full((1,), _FIRST_COUNT, dtype=torch.float64))

    def update(self, rows: torch.Tensor) -> None:
        """Merges [rows, size]."""
        if not len(rows):
            return
        rows = rows.to(self.mean.device, torch.float64)
        count = float(len(rows))
        mean, var = rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + count
        delta = mean - self.mean
        squares = self.var * self.count + var * count + delta.square() * self.count * count / total
        self.mean.copy_(self.mean + delta * count / total)
        self.var.copy_(squares / total)
        self.count.copy_(total)


class ObsNormalizer(nn.Module):
    """Brings the numbers of observations to mean 0 and variance 1, clipped: every Box, but for bytes."""

    def __init__(self, leaves: list[Leaf], clip: float) -> None:
        super().__init__()
        self._leaves = [leaf for leaf in leaves if leaf.description["type"] == "Box" and leaf.dtype != np.uint8]
        self._clip = clip
        self.moments = nn.ModuleList(RunningMoments(int(np.prod(leaf.shape, dtype=int))) for leaf in self._leaves)

    def forward(self, obs: Any) -> Any:
        for leaf, moments in zip(self._leaves, self.moments, strict=True):
            assert isinstance(moments, RunningMoments)
            value = leaf.pick(obs)
            flat = value.reshape(-1, moments.mean.numel()).double()
            normal = (flat - moments.mean) / torch.sqrt(moments.var + _FLOOR)
            obs = _put(obs, leaf.keys, normal.clamp(-self._clip, self._clip).float().reshape(value.shape))
        return obs

    def update(self, obs: Any) -> None:
        for leaf, moments in zip(self._leaves, self.moments, strict=True):
            assert isinstance(moments, RunningMoments)
            moments.update(leaf.pick(obs).reshape(-1, moments.mean.numel()))


class RewardScaler:
    """From raw rewards to those that are learned from: as they are, their sign, or divided by the running standard deviation
    of the discounted return and clipped.

    Attributes:
        running: the discounted returns under way, one an environment.
    """

    def __init__(self, num_envs: int, config: Mapping[str, Any]) -> None:
        self._sign, self._normalize = config["sign_reward"], config["normalize_reward"]
        self._gamma, self._clip = config["gamma"], config["clip_reward"]
        self.running = torch.zeros(num_envs, dtype=torch.float64)
        self.moments = RunningMoments(1)

    def scale(
        self, reward: torch.Tensor, ended: torch.Tensor, is_first: torch.Tensor, valid: torch.Tensor
    ) -> torch.Tensor:
        """Of a rollout, [steps, envs] each. Rows that are not valid give 0, teach nothing, and end what was under way."""
        reward = reward * valid
        if self._sign:
            return reward.sign()
        if not self._normalize:
            return reward
        scaled = torch.empty_like(reward)
        for t in range(len(reward)):
            self.running = self.running * ~is_first[t] * self._gamma + reward[t]
            self.moments.update(self.running[valid[t], None])
            spread = torch.sqrt(self.moments.var[0] + _FLOOR)
            scaled[t] = (reward[t].double() / spread).clamp(-self._clip, self._clip)
            self.running = self.running * (valid[t] & ~ended[t])
        return scaled


def _put(tree: Any, keys: tuple[Any, ...], value: Any) -> Any:
    """A copy of the tree with another leaf."""
    if not keys:
        return value
    first, rest = keys[0], keys[1:]
    if isinstance(tree, Mapping):
        return {**tree, first: _put(tree[first], rest, value)}
    return tuple(_put(part, rest, value) if i == first else part for i, part in enumerate(tree))
