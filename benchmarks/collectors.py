"""Frames per second of `shoal.Collector` and of TorchRL's, mode by mode, alternating in one run: CartPole-v1 and the same small torch
policy.

    python benchmarks/collectors.py                  # --envs 16 --frames 1024 --seconds 4 --rounds 5

Both step Gymnasium's own Python environments. With mode="sync", TorchRL's figure of a round is the better one of its environments in
its process (SerialEnv) and in two workers (ParallelEnv of SerialEnvs); its MultiSyncCollector and MultiAsyncCollector have two workers
with half of the environments each, as ours have. A ratio is of one round's figures. Beside them: Shoal with its native environment, which
gives the same bits as Gymnasium's, in all modes; with a C++ network, and with both. Without TorchRL's environment
(benchmarks/peers/setup torchrl) Shoal runs alone.

    python benchmarks/collectors.py --many 64    # instead: how long 64 collectors with 8 environments take to start, what they weigh
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import shoal

MULTI = ("multi_sync", "multi_async")
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
    if more.get("mode") in MULTI:
        more |= {"num_collectors": 2, "policy_batch": arguments.envs // 2}
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
    # A session of its own: once it has told its figure it is ended with all of its processes, whose shutdown may take minutes.
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        figure = next((line for line in process.stdout if line.startswith("{")), None)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if figure is None:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{errors.read()}")
    return json.loads(figure)["per_second"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--frames", type=int, default=1024, help="of a batch")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int, metavar="COLLECTORS", help="measure how so many start, and nothing else")
    arguments = parser.parse_args()
    if arguments.many:
        measure_many(arguments.many)
        return
    contestants = {
        "shoal-serial": lambda: run_shoal("CartPole-v1", Policy(), arguments, num_workers=0),
        "shoal-process": lambda: run_shoal("CartPole-v1", Policy(), arguments, num_workers=2),
        **{
            f"shoal-{mode}": lambda mode=mode: run_shoal("CartPole-v1", Policy(), arguments, mode=mode)
            for mode in MULTI
        },
    }
    if TORCHRL.exists():
        contestants |= {
            f"torchrl-{kind}": lambda kind=kind: run_torchrl(kind, arguments) for kind in ("serial", "parallel", *MULTI)
        }
    else:
        print(f"no {TORCHRL}: run benchmarks/peers/setup torchrl to compare")
    contestants |= {
        "shoal-native-env": lambda: run_shoal("shoal/CartPole-v1", Policy(), arguments),
        **{
            f"shoal-native-env-{mode}": lambda mode=mode: run_shoal("shoal/CartPole-v1", Policy(), arguments, mode=mode)
            for mode in MULTI
        },
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
        best = [max(pair) for pair in zip(rates["torchrl-serial"], rates["torchrl-parallel"], strict=True)]
        peers = dict.fromkeys(("shoal-serial", "shoal-process", "shoal-native-env"), best) | {
            f"{ours}-{mode}": rates[f"torchrl-{mode}"] for ours in ("shoal", "shoal-native-env") for mode in MULTI
        }
        for name, theirs in peers.items():
            ratios = [one / other for one, other in zip(rates[name], theirs, strict=True)]
            print(f"{name} / torchrl: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})")


def measure_many(collectors: int) -> None:
    """How long collectors with 8 environments each take to their first batch, and what their processes hold of their own."""
    torch.set_num_threads(1)
    for round_name in ("first", "warm zygote"):
        begin = time.perf_counter()
        with shoal.Collector(
            "CartPole-v1", Policy(), num_envs=8 * collectors, frames_per_batch=64 * collectors, mode="multi_sync",
            num_collectors=collectors,
        ) as collector:  # fmt: skip
            started = time.perf_counter() - begin
            next(collector)
            first = time.perf_counter() - begin
            own = [private_bytes(entry["pid"]) for entry in collector.stats()["collectors"]]
        print(
            f"{collectors} collectors x 8 environments, {round_name}: started in {started:.2f} s, first batch after {first:.2f} s; "
            f"{statistics.median(own) / 2**20:.1f} MiB of their own each ({max(own) / 2**20:.1f} at most)"
        )


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    main()
