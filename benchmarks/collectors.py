"""Frames per second of `shoal.Collector` and of TorchRL's, alternating in one run: CartPole-v1 and the same small torch policy.

    python benchmarks/collectors.py                  # --envs 16 --frames 1024 --seconds 4 --rounds 5

Both step Gymnasium's own Python environments. TorchRL's figure of a round is the better one of its environments in its process
(SerialEnv) and in two workers (ParallelEnv of SerialEnvs); a ratio is of one round's figures. Beside them: Shoal with its
native environment, with a C++ network, and with both. Without TorchRL's environment (benchmarks/peers/setup torchrl) Shoal runs
alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import shoal

ROOT = Path(__file__).resolve().parents[1]
TORCHRL = Path(os.environ.get("SHOAL_PEERS") or ROOT / "build/peers") / "torchrl/bin/python"


class Policy(torch.nn.Module):
    """As benchmarks/peers/torchrl_collectors.py has it."""

    def __init__(self) -> None:
        super().__init__()
        linear, tanh = torch.nn.Linear, torch.nn.Tanh
        self.body = torch.nn.Sequential(linear(4, 64), tanh(), linear(64, 64), tanh(), linear(64, 2))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.distributions.Categorical(logits=self.body(obs))
        action = chosen.sample()
        return action, chosen.log_prob(action)


def run_shoal(env: str, policy: Any, arguments: argparse.Namespace, **more: Any) -> float:
    torch.set_num_threads(1)
    with shoal.Collector(
        env, policy, num_envs=arguments.envs, frames_per_batch=arguments.frames, next_obs=True, **more
    ) as collector:
        next(collector)  # the start is in it
        frames, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < arguments.seconds:
            next(collector)
            frames += arguments.frames
        return frames / (time.perf_counter() - begin)


def run_torchrl(kind: str, arguments: argparse.Namespace) -> float:
    command = [str(TORCHRL), str(ROOT / "benchmarks/peers/torchrl_collectors.py"), f"--kind={kind}", "--workers=2"]
    command += [f"--envs={arguments.envs}", f"--frames={arguments.frames}", f"--seconds={arguments.seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--frames", type=int, default=1024, help="of a batch")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    contestants = {
        "shoal-serial": lambda: run_shoal("CartPole-v1", Policy(), arguments, num_workers=0),
        "shoal-process": lambda: run_shoal("CartPole-v1", Policy(), arguments, num_workers=2),
    }
    if TORCHRL.exists():
        contestants |= {
            f"torchrl-{kind}": lambda kind=kind: run_torchrl(kind, arguments) for kind in ("serial", "parallel")
        }
    else:
        print(f"no {TORCHRL}: run benchmarks/peers/setup torchrl to compare")
    contestants |= {
        "shoal-native-env": lambda: run_shoal("shoal/CartPole-v1", Policy(), arguments),
        "shoal-network": lambda: run_shoal("CartPole-v1", "sb3", arguments),
        "shoal-native-env-network": lambda: run_shoal("shoal/CartPole-v1", "sb3", arguments),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(arguments.rounds):
        for name, run in contestants.items():
            rates[name].append(run())
    for name, measured in rates.items():
        median, low, high = statistics.median(measured), min(measured), max(measured)
        print(f"{name:26} {median:12,.0f} frames/s ({low:,.0f} to {high:,.0f})")
    if TORCHRL.exists():
        best = [
            [max(rates[name][i] for name in rates if name.startswith(peer)) for i in range(arguments.rounds)]
            for peer in ("shoal-serial", "shoal-process", "torchrl")
        ]
        for name, ours in zip(("shoal-serial", "shoal-process"), best, strict=False):
            ratios = [one / other for one, other in zip(ours, best[2], strict=True)]
            print(f"{name} / torchrl: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
