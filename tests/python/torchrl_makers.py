"""Environments of TorchRL, for the tests of its adapter."""

from __future__ import annotations

from typing import Any

from torchrl.envs import Compose, EnvBase, GymEnv, TransformedEnv
from torchrl.envs.transforms import RewardSum, StepCounter

from sample_envs import CounterEnv


def cartpole(**kwargs: Any) -> EnvBase:
    return GymEnv("CartPole-v1", max_episode_steps=12, **kwargs)


def transformed() -> EnvBase:
    return TransformedEnv(cartpole(), Compose(StepCounter(), RewardSum()))


class Raising(CounterEnv):
    def step(self, action: Any) -> Any:
        raise KeyError("of the environment")
