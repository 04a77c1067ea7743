"""Torch modules for the tests of learning with networks of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Categorical, Independent, Normal


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class ActorCritic(nn.Module):
    """Two MLPs, for observations in one Box, and Discrete or Box actions."""

    def __init__(self, observation_space: Any, action_space: Any, hidden: int = 64) -> None:
        super().__init__()
        size = int(np.prod(observation_space.shape))
        self.is_discrete = isinstance(action_space, spaces.Discrete)
        outputs = int(action_space.n) if self.is_discrete else int(np.prod(action_space.shape))
        self.actor = self.mlp(size, hidden, outputs, 0.01)
        self.critic = self.mlp(size, hidden, 1, 1.0)
        if not self.is_discrete:
            self.log_std = nn.Parameter(torch.zeros(outputs))

    @staticmethod
    def mlp(size: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
        return nn.Sequential(
            layer(size, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh(), layer(hidden, outputs, gain)
        )

    def distribution(self, obs: torch.Tensor) -> Any:
        head = self.actor(obs.float())
        if self.is_discrete:
            return Categorical(logits=head, validate_args=False)
        return Independent(
            Normal(head, self.log_std.exp().expand_as(head), validate_args=False), 1, validate_args=False
        )

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs.float()).squeeze(-1)

    def forward(self, obs: torch.Tensor) -> Any:
        distribution = self.distribution(obs)
        action = distribution.sample()
        return action, distribution.log_prob(action), self.value(obs)

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> Any:
        distribution = self.distribution(obs)
        return distribution.log_prob(action), self.value(obs), distribution.entropy()

    def mode(self, obs: torch.Tensor) -> torch.Tensor:
        head = self.actor(obs.float())
        return head.argmax(-1) if self.is_discrete else head


class WithoutMode(ActorCritic):
    mode = None  # type: ignore[assignment]


class Dropping(ActorCritic):
    """Draws numbers while it learns, too."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space, 8)
        self.actor.insert(2, nn.Dropout(0.1))
