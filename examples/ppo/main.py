"""Proximal policy optimisation in one file, in the manner of CleanRL: the environments are Shoal's, all else is plain torch.

    python examples/ppo/main.py [--env-id CartPole-v1] [--num-envs 4] [--total-timesteps 100000]

It prints the mean return of the last hundred episodes. The same seed gives the same returns for any number of workers.
J. Schulman et al., "Proximal policy optimization algorithms", 2017; advantages by J. Schulman et al., "High-dimensional
continuous control using generalized advantage estimation", 2016.
"""

from __future__ import annotations

import argparse
import collections
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import shoal


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PPO on environments with discrete actions")
    parser.add_argument(
        "--env-id", default="CartPole-v1", help="of Gymnasium's registry, or a native one: shoal/CartPole-v1"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=100_000)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=None, help="worker processes; 0 steps in this one")
    parser.add_argument("--num-steps", type=int, default=128, help="of each environment between two updates")
    parser.add_argument("--learning-rate", type=float, default=2.5e-4, help="at first; it falls to 0")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    return parser.parse_args()


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    def __init__(self, envs: Any) -> None:
        super().__init__()
        size = int(np.prod(envs.single_observation_space.shape))
        self.critic = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.actor = nn.Sequential(
            layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, int(envs.single_action_space.n), 0.01)
        )

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.critic(obs.flatten(1))
        return value.squeeze(-1)

    def policy(self, obs: torch.Tensor) -> Categorical:
        return Categorical(logits=self.actor(obs.flatten(1)), validate_args=False)


class Rollout:
    """`steps` steps of every environment, as tensors of shape (steps, environments, …)."""

    def __init__(self, steps: int, envs: Any) -> None:
        shape = (steps, envs.num_envs)
        self.obs = torch.zeros(*shape, *envs.single_observation_space.shape)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probs, self.values, self.rewards, self.ended = (torch.zeros(shape) for _ in range(4))

    def advantages(self, last_values: torch.Tensor, gamma: float, gae_lambda: float) -> torch.Tensor:
        advantages = torch.zeros_like(self.rewards)
        following, values = torch.zeros_like(last_values), last_values
        for t in reversed(range(len(advantages))):
            going_on = 1 - self.ended[t]
            delta = self.rewards[t] + gamma * values * going_on - self.values[t]
            advantages[t] = following = delta + gamma * gae_lambda * going_on * following
            values = self.values[t]
        return advantages


def collect(rollout: Rollout, envs: Any, agent: Agent, obs: torch.Tensor, gamma: float, returns: Any) -> torch.Tensor:
    """Fills the rollout; returns the observations after it, and adds what episodes reached to `returns`."""
    for t in range(len(rollout.obs)):
        with torch.no_grad():
            policy = agent.policy(obs)
            action = policy.sample()
            rollout.log_probs[t], rollout.values[t] = policy.log_prob(action), agent.value(obs)
        rollout.obs[t], rollout.actions[t] = obs, action
        following, rewards, terminated, truncated, infos = envs.step(action.numpy())
        rollout.rewards[t] = torch.from_numpy(rewards)
        rollout.ended[t] = torch.from_numpy(terminated | truncated)
        if truncated.any():  # the episode would have gone on: its last observation is worth what the critic says
            for i in np.flatnonzero(truncated & ~terminated):
                last = torch.as_tensor(infos["final_obs"][i], dtype=torch.float32)[None]
                with torch.no_grad():
                    rollout.rewards[t, i] += gamma * agent.value(last)[0]
        if "episode" in infos:
            returns.extend(infos["episode"]["r"][infos["_episode"]])
        obs = torch.as_tensor(following, dtype=torch.float32)
    return obs


def update(rollout: Rollout, advantages: torch.Tensor, agent: Agent, optimizer: Any, args: argparse.Namespace) -> None:
    obs, actions, log_probs = rollout.obs.flatten(0, 1), rollout.actions.flatten(), rollout.log_probs.flatten()
    all_advantages = advantages.flatten()
    targets = all_advantages + rollout.values.flatten()
    for _ in range(args.update_epochs):
        for rows in torch.randperm(len(actions)).chunk(args.num_minibatches):
            policy = agent.policy(obs[rows])
            ratio = (policy.log_prob(actions[rows]) - log_probs[rows]).exp()
            advantage = all_advantages[rows]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            value_loss = 0.5 * (agent.value(obs[rows]) - targets[rows]).square().mean()
            loss = policy_loss - args.ent_coef * policy.entropy().mean() + args.vf_coef * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(
        1
    )  # so small a network computes no faster on several, and the environments need the other CPUs
    returns: collections.deque[float] = collections.deque(maxlen=100)
    updates = max(1, args.total_timesteps // (args.num_envs * args.num_steps))
    with shoal.make_vec(
        args.env_id,
        args.num_envs,
        num_workers=args.num_workers,
        autoreset_mode="same_step",
        episode_statistics=True,
        seed=args.seed,
    ) as envs:
        agent = Agent(envs)
        optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
        rollout = Rollout(args.num_steps, envs)
        obs = torch.as_tensor(envs.reset()[0], dtype=torch.float32)
        start = time.monotonic()
        for n in range(updates):
            optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - n / updates)
            obs = collect(rollout, envs, agent, obs, args.gamma, returns)
            with torch.no_grad():
                last_values = agent.value(obs)
            update(rollout, rollout.advantages(last_values, args.gamma, args.gae_lambda), agent, optimizer, args)
            steps = (n + 1) * args.num_envs * args.num_steps
            if returns and (n % 10 == 9 or n == updates - 1):
                rate = steps / (time.monotonic() - start)
                print(f"{steps} steps: mean return {np.mean(returns):.1f}, {rate:.0f} steps/s", flush=True)


if __name__ == "__main__":
    main()
