"""Asynchronous advantage actor-critic on CartPole: each process steps its own environment and changes one shared network.

    python examples/a3c/main.py [--processes 2] [--steps 20000]

The network and the optimiser's averages are shared in place; a lock guards each update, so that an average fits its
parameter. Returns come home through a queue. V. Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch

import shoal.multiprocessing as mp

ROLLOUT, GAMMA, ENTROPY, MAX_GRADIENT, LEARNING_RATE = 32, 0.99, 0.01, 40.0, 3e-3


class Policy(torch.nn.Module):
    """Policy and value have a body each: the errors of values, a hundred times larger, would rule a common one."""

    def __init__(self) -> None:
        super().__init__()
        self.logits, self.value = layers(2), layers(1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.logits(obs), self.value(obs).squeeze(-1)


def layers(outputs: int) -> torch.nn.Module:
    linear, tanh = torch.nn.Linear, torch.nn.Tanh
    return torch.nn.Sequential(linear(4, 64), tanh(), linear(64, 64), tanh(), linear(64, outputs))


def shared_adam(model: torch.nn.Module, lr: float) -> torch.optim.Adam:
    """Adam whose state exists before the first step, where all processes see it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": mp.SharedTensor(torch.zeros(())),
            "exp_avg": mp.SharedTensor(torch.zeros_like(parameter)),
            "exp_avg_sq": mp.SharedTensor(torch.zeros_like(parameter)),
        }
    return optimizer


def rollout(env: Any, obs: np.ndarray, model: Policy, finished: list[float]) -> tuple[torch.Tensor, np.ndarray]:
    """The loss of the next ROLLOUT steps, and where they ended."""
    seen = torch.empty(ROLLOUT + 1, len(obs))
    actions = torch.empty(ROLLOUT, dtype=torch.int64)
    rewards: list[float] = []
    ends: list[bool] = []
    for i in range(ROLLOUT):
        seen[i] = torch.from_numpy(obs)
        with torch.no_grad():
            chances = model(seen[i])[0].softmax(0)
        actions[i] = torch.multinomial(chances, 1)
        obs, reward, terminated, truncated, info = env.step(actions[i].item())
        rewards.append(float(reward))
        ends.append(terminated or truncated)
        if terminated or truncated:
            finished.append(float(info["episode"]["r"]))
            obs, _ = env.reset()
    seen[ROLLOUT] = torch.from_numpy(obs)
    logits, values = model(seen)
    following = values[-1].item()
    returns = []
    for reward, end in zip(reversed(rewards), reversed(ends), strict=True):
        following = reward + GAMMA * following * (not end)
        returns.append(following)
    advantages = torch.tensor(returns[::-1]) - values[:-1]
    choice = torch.distributions.Categorical(logits=logits[:-1])
    policy_loss = -(choice.log_prob(actions) * advantages.detach()).mean()
    return policy_loss + 0.5 * advantages.square().mean() - ENTROPY * choice.entropy().mean(), obs


def work(index: int, model: Policy, optimizer: torch.optim.Adam, lock: Any, steps: int, returns: Any) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(index)
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    obs, _ = env.reset(seed=index)
    local = Policy()
    finished: list[float] = []
    for _ in range(steps // ROLLOUT):
        local.load_state_dict(model.state_dict())
        local.zero_grad()
        loss, obs = rollout(env, obs, local, finished)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(local.parameters(), MAX_GRADIENT)
        with lock:
            for shared, own in zip(model.parameters(), local.parameters(), strict=True):
                shared.grad = own.grad
            optimizer.step()
    returns.put(finished)


def evaluate(model: Policy, episodes: int = 20) -> float:
    """Mean return of the likeliest actions."""
    total = 0.0
    env = gymnasium.make("CartPole-v1")
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            with torch.no_grad():
                action = model(torch.from_numpy(obs))[0].argmax().item()
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
    return total / episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_000, help="of each process")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = mp.share_module(Policy())
    returns, lock = mp.Queue(), mp.Lock()
    arguments = (model, shared_adam(model, LEARNING_RATE), lock, options.steps, returns)
    mp.start_processes(work, arguments, options.processes, start_method="forkserver")
    for _ in range(options.processes):
        finished = returns.get()
        print(
            f"{len(finished)} episodes: mean return {np.mean(finished[:20]):.0f} at first, {np.mean(finished[-20:]):.0f} at last"
        )
    print(f"the shared network: mean return {evaluate(model):.0f}")


if __name__ == "__main__":
    main()
