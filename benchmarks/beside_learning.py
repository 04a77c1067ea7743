#!/usr/bin/env python3
"""What collecting loses where a learner learns beside it, and where one environment is slow.

    python benchmarks/beside_learning.py learner [--collectors 1] [--envs 8] [--segmenter own]
    python benchmarks/beside_learning.py slow [--collectors 3] [--mean-ms 5]        # both: --rounds 5 --seconds 5

`learner`: SegmentedWorld (examples/segmentation), steps per second. "simulation" are the environments alone, stepped with drawn actions
in as many processes as there are collectors; "collecting" is `shoal.Collector` in "multi_async" with a torch policy; "beside a
learner" is the same while this process learns from each batch (A2C's loss, `--epochs` times over it) and gives the new weights to the
collectors. "appo" is `shoal.learn.train(…, "appo")`, with its workers. Give one collector less than there are CPUs, so that the learner has one.

`slow`: environments whose step takes some microseconds, and one collector whose environments sleep, exponentially distributed, 5 ms in the
mean. Told are the steps per second of the other collectors: beside the slow one, and beside a fast one in its place. With "multi_sync",
which waits for all, they are as slow as it is.

All sides alternate; a ratio is of one round's figures.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from in_turns import compared, rates_of, show

import shoal

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples/segmentation"))
from segmented_world import SegmentedWorld

LIMIT = 100
"""Steps of an episode of SegmentedWorld."""


class Policy(torch.nn.Module):
    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        linear, tanh = torch.nn.Linear, torch.nn.Tanh
        self.body = torch.nn.Sequential(linear(observations, 64), tanh(), linear(64, 64), tanh())
        self.heads = linear(64, 1 + actions)

    def both(self, obs: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        value, *logits = self.heads(self.body(obs)).split([1, self.heads.out_features - 1], -1)
        return torch.distributions.Categorical(logits=logits[0]), value[..., 0]

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        chosen, value = self.both(obs)
        action = chosen.sample()
        return action, chosen.log_prob(action), value


class Learner:
    """Returns, discounted to the end of the batch, as the targets of A2C's loss."""

    def __init__(self, policy: Policy, epochs: int) -> None:
        self._policy = policy
        self._epochs = epochs
        self._optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)

    def learn(self, batch: dict[str, Any]) -> None:
        with torch.no_grad():
            following = self._policy.both(batch["next_obs"][-1])[1]
        targets = torch.zeros_like(batch["reward"])
        for t in reversed(range(len(targets))):
            ended = batch["terminated"][t].bool() | batch["truncated"][t].bool()
            targets[t] = following = batch["reward"][t] + 0.99 * following * ~ended
        for _ in range(self._epochs):
            chosen, value = self._policy.both(batch["obs"])
            error = targets - value
            loss = -(chosen.log_prob(batch["action"]) * error.detach()).mean() + error.square().mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()


def simulated(options: argparse.Namespace) -> float:
    envs = options.envs * options.collectors
    kwargs = {"segmenter": options.segmenter}
    with shoal.make_vec(
        SegmentedWorld, envs, num_workers=options.collectors, env_kwargs=kwargs, max_episode_steps=LIMIT
    ) as vec:
        vec.reset(seed=0)
        random, steps, begin = np.random.default_rng(0), 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            vec.step(random.integers(4, size=envs))
            steps += envs
        return steps / (time.perf_counter() - begin)


def collected(options: argparse.Namespace, learns: bool) -> float:
    policy = Policy(6, 4)
    learner = Learner(policy, options.epochs)
    envs = options.envs * options.collectors
    with shoal.Collector(
        SegmentedWorld, policy, num_envs=envs, frames_per_batch=options.envs * options.steps, mode="multi_async",
        num_collectors=options.collectors, policy_batch=options.envs, next_obs=True, env_kwargs={"segmenter": options.segmenter}, max_episode_steps=LIMIT,
    ) as collector:  # fmt: skip
        next(collector)  # the start is in it
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            batch = next(collector)
            steps += batch["reward"].numel()
            if learns:
                learner.learn(batch)
                collector.update_weights()
        return steps / (time.perf_counter() - begin)


def trained(options: argparse.Namespace) -> float:
    envs = options.envs * options.collectors
    told: dict[str, Any] = {"num_envs": envs, "num_steps": options.steps, "batch_size": 64, "epochs": options.epochs}
    told |= {"eval_every": 0, "eval_envs": 1, "final_episodes": 0, "total_steps": 10**9, "log_interval": 1}
    told |= {"env_kwargs": {"segmenter": options.segmenter}, "max_episode_steps": LIMIT}
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder,
        shoal.learn.Trainer(
            SegmentedWorld, "appo", preset="default", num_workers=options.collectors, run_dir=f"{folder}/run", **told
        ) as trainer,
    ):
        trainer.start()
        while trainer.status()["step"] == 0 and not trainer.wait(0.005):
            pass
        begin, first = time.perf_counter(), trainer.status()["step"]
        trainer.wait(options.seconds)
        return (trainer.status()["step"] - first) / (time.perf_counter() - begin)


def learner(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    sides = {
        "simulation": lambda: simulated(options),
        "collecting": lambda: collected(options, learns=False),
        "beside a learner": lambda: collected(options, learns=True),
        "appo": lambda: trained(options),
    }
    print(
        f"SegmentedWorld, segmenter {options.segmenter!r}, {options.collectors} collector(s) of {options.envs} environments: "
        "times the simulation's rate"
    )
    rates = rates_of(sides, options.rounds)
    show(compared(rates, "times", first_is_above=False), "times")
    ratios = [beside / alone for beside, alone in zip(rates["beside a learner"], rates["collecting"], strict=True)]
    print(f"  beside a learner / collecting alone: x {sorted(ratios)[len(ratios) // 2]:.2f}")


class Sleeper(gymnasium.Env):
    """Steps that sleep, exponentially distributed; episodes of 200 steps."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, mean: float = 0.0) -> None:
        self._mean = mean

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self._mean:
            time.sleep(self.np_random.exponential(self._mean))
        self._steps += 1
        return np.zeros(4, np.float32), 1.0, False, self._steps == 200, {}


def of_the_fast(options: argparse.Namespace, mode: str, last: Callable[[], Sleeper]) -> float:
    """Steps per second of all collectors but the last, which makes its environments with `last`."""
    fast = options.envs * (options.collectors - 1)
    factories = [Sleeper] * fast + [last] * options.envs
    rows = options.steps * (options.envs if mode == "multi_async" else len(factories))
    with shoal.Collector(
        factories, Policy(4, 2), frames_per_batch=rows, mode=mode, num_collectors=options.collectors,
        policy_batch=options.envs, output="numpy",
    ) as collector:  # fmt: skip
        next(collector)
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            steps += int((next(collector)["env_id"] < fast).sum())
        return steps / (time.perf_counter() - begin)


def slow(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    slow = functools.partial(Sleeper, options.mean_ms / 1000)
    sides = {
        "multi_async, all fast": lambda: of_the_fast(options, "multi_async", Sleeper),
        "multi_async, one slow": lambda: of_the_fast(options, "multi_async", slow),
        "multi_sync, all fast": lambda: of_the_fast(options, "multi_sync", Sleeper),
        "multi_sync, one slow": lambda: of_the_fast(options, "multi_sync", slow),
    }
    print(
        f"{options.collectors - 1} collectors of {options.envs} environments, beside one more: times the first line's rate"
    )
    show(compared(rates_of(sides, options.rounds), "times", first_is_above=False), "times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["learner", "slow"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--collectors", type=int, help="1 with `learner`, 3 with `slow`")
    parser.add_argument("--envs", type=int, default=8, help="of each collector")
    parser.add_argument("--steps", type=int, default=32, help="of each environment in a batch")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--segmenter", choices=["own", "truth"], default="own")
    parser.add_argument("--mean-ms", type=float, default=5)
    options = parser.parse_args()
    options.collectors = options.collectors or (1 if options.what == "learner" else 3)
    {"learner": learner, "slow": slow}[options.what](options)


if __name__ == "__main__":
    main()
