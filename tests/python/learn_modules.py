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


class Remembering(nn.Module):
    """A recurrent one, for observations in one Box and Discrete actions."""

    def __init__(self, observation_space: Any, action_space: Any, hidden: int = 16) -> None:
        super().__init__()
        self.hidden = hidden
        self.cell = nn.GRUCell(int(np.prod(observation_space.shape)), hidden)
        self.head = nn.Linear(hidden, int(action_space.n) + 1)

    def initial_state(self, num_envs: int) -> Any:
        return {"memory": torch.zeros(num_envs, self.hidden), "steps": torch.zeros(num_envs, dtype=torch.int64)}

    def step(self, obs: torch.Tensor, state: Any, is_first: torch.Tensor) -> tuple[torch.Tensor, Any]:
        memory = self.cell(obs.float(), state["memory"] * ~is_first[:, None])
        return self.head(memory), {"memory": memory, "steps": state["steps"] * ~is_first + 1}

    def forward(self, obs: torch.Tensor, state: Any, is_first: torch.Tensor) -> Any:
        out, state = self.step(obs, state, is_first)
        distribution = Categorical(logits=out[:, 1:])
        action = distribution.sample()
        log_prob = distribution.log_prob(action)
        return {"action": action, "log_prob": log_prob, "value": out[:, 0], "state": state}

    def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor, state: Any, is_first: torch.Tensor) -> Any:
        outs = []
        for t in range(len(obs)):
            out, state = self.step(obs[t], state, is_first[t])
            outs.append(out)
        out = torch.stack(outs)
        distribution = Categorical(logits=out[..., 1:])
        return distribution.log_prob(action), out[..., 0], distribution.entropy()

    def mode(self, obs: torch.Tensor, state: Any, is_first: torch.Tensor) -> Any:
        out, state = self.step(obs, state, is_first)
        return {"action": out[:, 1:].argmax(-1), "state": state}


class Amnesic(Remembering):
    """Forgets all at each step."""

    def step(self, obs: torch.Tensor, state: Any, is_first: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return super().step(obs, state, torch.ones_like(is_first))


class Stateless(Remembering):
    """Forgets to return its state."""

    def forward(self, obs: torch.Tensor, state: Any, is_first: torch.Tensor) -> Any:
        given = super().forward(obs, state, is_first)
        del given["state"]
        return given


class LayersFirst(Remembering):
    def initial_state(self, num_envs: int) -> Any:
        return torch.zeros(1, num_envs, self.hidden)
