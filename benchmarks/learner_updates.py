#!/usr/bin/env python3
"""Updates per second of PPO, DQN, SAC and recurrent PPO: Shoal's, PyTorch's eager and its `torch.compile`, one thread each.

    python benchmarks/learner_updates.py [--only ppo] [--rounds 5] [--seconds 2] [--no-compile]

The same network, the same sizes of batches, Adam and clipping as the algorithm has them. Shoal's time holds all that its learner does for
an update, sampling from the replay and the target network too; PyTorch's learns from one batch that lies there. PyTorch's code is
what Stable-Baselines3's `train()` comes to without its buffer and logger; compiled is all of it but the optimisers. The three alternate, round by
round; what is compared is the best round of each. The closing line says what else was running.

Of recurrent PPO a batch is 128 steps of two environments. "eager" calls torch's LSTM step by step, resetting its state where episodes begin, as
sb3-contrib and CleanRL do; "eager, no resets" calls it once for all steps, as one may where no episode ends; neither is compiled.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import shoal

CASES: list[tuple[str, list[int], int]] = [
    ("ppo", [64, 64], 64),
    ("ppo", [256, 256], 256),
    ("dqn", [64, 64], 32),
    ("dqn", [256, 256], 64),
    ("sac", [64, 64], 128),
    ("sac", [256, 256], 256),
    ("recurrent_ppo", [64], 256),
    ("recurrent_ppo", [256], 256),
]
# Elements of observations and actions.
ENV = {
    "ppo": ("shoal/CartPole-v1", 4, 2),
    "dqn": ("shoal/CartPole-v1", 4, 2),
    "sac": ("shoal/Pendulum-v1", 3, 1),
    "recurrent_ppo": ("shoal/CartPoleNoVel-v1", 4, 2),
}
STEPS = 128  # of an environment in a rollout of PPO


def shoal_seconds(algorithm: str, hidden: list[int], batch: int, seconds: float) -> float:
    """Of one update."""
    options: dict[str, Any] = {
        "policy_hidden": hidden,
        "value_hidden": hidden,
        "batch_size": batch,
        "preset": "sb3",
        "num_workers": 0,
        "total_steps": 10_000_000,
        "eval_every": 0,
        "eval_envs": 1,
        "final_episodes": 0,
        "save_every_seconds": 1e9,
    }
    updates = 200  # of an iteration
    if algorithm in ("ppo", "recurrent_ppo"):
        options |= {"num_envs": 8, "num_steps": STEPS, "epochs": 4, "activation": "relu"}
        updates = 8 * STEPS // batch * 4
    else:
        options |= {"num_envs": 1, "num_steps": 200, "train_freq": 1, "gradient_steps": 1, "buffer_size": 20_000}
    if algorithm == "recurrent_ppo":
        options["lstm_size"] = hidden[0]
    if algorithm == "dqn":
        options |= {"target_update_interval": 500, "double_dqn": False}
        del options["value_hidden"]
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        with shoal.learn.Trainer(ENV[algorithm][0], algorithm, run_dir=f"{scratch}/run", **options) as trainer:
            trainer.start()
            until = time.perf_counter() + seconds
            best, seen = float("inf"), 0
            while not trainer.wait(0.002) and time.perf_counter() < until:
                status = trainer.status()
                if status["iteration"] > max(seen, 1):
                    seen = status["iteration"]
                    best = min(best, status["update_seconds"] / updates)
            trainer.stop()
            trainer.wait()
    return best


def mlp(width: int, hidden: list[int], outputs: int) -> Any:
    from torch import nn

    layers: list[Any] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def surrogate_loss(logits: Any, value: Any, taken: Any, old: Any, advantage: Any, returns: Any) -> Any:
    """PPO's, as Stable-Baselines3's `train()` has it."""
    import torch

    policy = torch.distributions.Categorical(logits=logits, validate_args=False)
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (policy.log_prob(taken) - old).exp()
    surrogate = torch.min(scaled * ratio, scaled * ratio.clamp(0.8, 1.2)).mean()
    return 0.5 * torch.nn.functional.mse_loss(value, returns) - surrogate - 0.01 * policy.entropy().mean()


def ppo_update(hidden: list[int], batch: int, compiled: bool) -> Callable[[], None]:
    import torch
    from torch import nn

    _, dense, actions = ENV["ppo"]
    actor, critic = mlp(dense, hidden, actions), mlp(dense, hidden, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-4, eps=1e-5)
    obs, returns, advantage = torch.randn(batch, dense), torch.randn(batch), torch.randn(batch)
    taken, old = torch.randint(0, actions, (batch,)), torch.full((batch,), -0.7)

    def loss_of() -> Any:
        return surrogate_loss(actor(obs), critic(obs).flatten(), taken, old, advantage, returns)

    made = torch.compile(loss_of) if compiled else loss_of

    def update() -> None:
        loss = made()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()

    return update


def dqn_update(hidden: list[int], batch: int, compiled: bool) -> Callable[[], None]:
    import torch
    from torch import nn

    _, dense, actions = ENV["dqn"]
    online, target = mlp(dense, hidden, actions), mlp(dense, hidden, actions)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
    obs, following = torch.randn(batch, dense), torch.randn(batch, dense)
    taken = torch.randint(0, actions, (batch, 1))
    rewards, dones = torch.randn(batch, 1), torch.zeros(batch, 1)

    def loss_of() -> Any:
        with torch.no_grad():
            best = target(following).max(dim=1).values.reshape(-1, 1)
            wanted = rewards + (1 - dones) * 0.99 * best
        return nn.functional.smooth_l1_loss(online(obs).gather(1, taken), wanted)

    made = torch.compile(loss_of) if compiled else loss_of

    def update() -> None:
        loss = made()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10)
        optimizer.step()

    return update


def sac_update(hidden: list[int], batch: int, compiled: bool) -> Callable[[], None]:
    import torch
    from torch import nn

    _, dense, actions = ENV["sac"]
    actor = mlp(dense, hidden, 2 * actions)
    critics, targets = ([mlp(dense + actions, hidden, 1) for _ in range(2)] for _ in range(2))
    log_alpha = torch.zeros(1, requires_grad=True)
    of_critics = [p for critic in critics for p in critic.parameters()]
    of_targets = [p for critic in targets for p in critic.parameters()]
    optimizers = [torch.optim.Adam(p, lr=3e-4) for p in ([log_alpha], of_critics, list(actor.parameters()))]
    obs, following = torch.randn(batch, dense), torch.randn(batch, dense)
    taken = torch.rand(batch, actions) * 2 - 1
    rewards, dones = torch.randn(batch, 1), torch.zeros(batch, 1)

    def draw(x: Any) -> tuple[Any, Any]:
        mean, log_std = actor(x).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp(), validate_args=False)
        raw = normal.rsample()
        action = raw.tanh()
        logp = normal.log_prob(raw).sum(-1, keepdim=True) - torch.log(1 - action**2 + 1e-6).sum(-1, keepdim=True)
        return action, logp

    def least(of: list[Any], x: Any, action: Any) -> Any:
        both = torch.cat([x, action], dim=1)
        return torch.min(of[0](both), of[1](both))

    def critic_loss(alpha: Any) -> Any:
        with torch.no_grad():
            action, logp = draw(following)
            wanted = rewards + (1 - dones) * 0.99 * (least(targets, following, action) - alpha * logp)
        both = torch.cat([obs, taken], dim=1)
        return 0.5 * sum(nn.functional.mse_loss(critic(both), wanted) for critic in critics)

    def actor_loss(alpha: Any, action: Any, logp: Any) -> Any:
        return (alpha * logp - least(critics, obs, action)).mean()

    parts = [draw, critic_loss, actor_loss]
    drawn, critic_of, actor_of = (torch.compile(part) if compiled else part for part in parts)

    def step(optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update() -> None:
        action, logp = drawn(obs)
        alpha = log_alpha.detach().exp()
        step(optimizers[0], -(log_alpha * (logp - actions).detach()).mean())
        step(optimizers[1], critic_of(alpha))
        step(optimizers[2], actor_of(alpha, action, logp))
        with torch.no_grad():
            for mine, theirs in zip(of_critics, of_targets, strict=True):
                theirs.mul_(0.995).add_(mine, alpha=0.005)

    return update


def recurrent_update(hidden: list[int], batch: int, resets: bool) -> Callable[[], None]:
    import torch
    from torch import nn

    _, dense, actions = ENV["recurrent_ppo"]
    envs, size = batch // STEPS, hidden[0]
    lstms = [nn.LSTM(dense, size) for _ in range(2)]
    heads = [mlp(size, hidden, outputs) for outputs in (actions, 1)]
    parameters = [p for module in (*lstms, *heads) for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-4, eps=1e-5)
    obs, returns, advantage = torch.randn(STEPS, envs, dense), torch.randn(batch), torch.randn(batch)
    taken, old = torch.randint(0, actions, (batch,)), torch.full((batch,), -0.7)
    begins = torch.rand(STEPS, envs, 1) < 0.02
    start = (torch.zeros(1, envs, size), torch.zeros(1, envs, size))

    def features(lstm: Any) -> Any:
        if not resets:
            return lstm(obs, start)[0].reshape(batch, size)
        state, outputs = start, []
        for x, first in zip(obs, begins, strict=True):
            keep = (~first).float()
            output, state = lstm(x[None], (keep * state[0], keep * state[1]))
            outputs.append(output)
        return torch.cat(outputs).reshape(batch, size)

    def update() -> None:
        logits, value = heads[0](features(lstms[0])), heads[1](features(lstms[1])).flatten()
        loss = surrogate_loss(logits, value, taken, old, advantage, returns)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()

    return update


def updates_of(algorithm: str, hidden: list[int], batch: int, compiled: bool) -> dict[str, Callable[[], None]]:
    if algorithm == "recurrent_ppo":
        names = {"eager": True, "eager, no resets": False}
        return {name: recurrent_update(hidden, batch, resets) for name, resets in names.items()}
    make = {"ppo": ppo_update, "dqn": dqn_update, "sac": sac_update}[algorithm]
    updates = {"eager": make(hidden, batch, False)}
    if compiled:
        updates["compile"] = make(hidden, batch, True)
    return updates


def torch_seconds(update: Callable[[], None], seconds: float) -> float:
    """Of one update: the best of some tens of stretches."""
    update()
    until = time.perf_counter() + seconds
    best = float("inf")
    while time.perf_counter() < until:
        begin = time.perf_counter()
        for _ in range(20):
            update()
        best = min(best, (time.perf_counter() - begin) / 20)
    return best


def compare(algorithm: str, hidden: list[int], batch: int, options: argparse.Namespace) -> None:
    updates = updates_of(algorithm, hidden, batch, options.compile)
    best = {"shoal": float("inf"), **dict.fromkeys(updates, float("inf"))}
    for _ in range(options.rounds):
        best["shoal"] = min(best["shoal"], shoal_seconds(algorithm, hidden, batch, options.seconds))
        for name, update in updates.items():
            best[name] = min(best[name], torch_seconds(update, options.seconds))
    ratios = ", ".join(f"{best[name] / best['shoal']:.1f} times {name}'s" for name in updates)
    times = ", ".join(f"{name} {1e6 * value:.0f} µs" for name, value in best.items())
    print(f"{algorithm} {'-'.join(map(str, hidden))}, batch {batch}: {times}: Shoal's rate is {ratios}", flush=True)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each of the three in each round")
    parser.add_argument("--only", choices=ENV, help="one algorithm")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for algorithm, hidden, batch in CASES:
        if options.only in (None, algorithm):
            compare(algorithm, hidden, batch, options)
    print(f"torch {torch.__version__}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
