#!/usr/bin/env python3
"""Wall time until PPO in torch has a mean training return of 475 in CartPole-v1: Shoal's two ways, CleanRL's ppo.py and
Stable-Baselines3's PPO, start-up included.

    python benchmarks/torch_ppo.py [--seeds 0 1 2] [--sides module example cleanrl sb3] [--score 475] [--cleanrl FILE]

"module" is `shoal.learn.train(policy=…)`, "example" examples/ppo/main.py. All have the settings of CleanRL's ppo.py (4 environments, rollouts
of 128 steps, four epochs of four minibatches, a learning rate that falls over 500,000 steps, two MLPs of 64-64 tanh), with its clipped loss
of the value switched off, which the example has not. All step Gymnasium's CartPole-v1. The clock runs from the start of the process until
the mean return of its last 100 training episodes is told to be at least the score; then it is ended. CleanRL tells each episode, the example
every ten updates, the others every update. CleanRL and Stable-Baselines3 run with torch's default number of threads and with one, and
the faster of the two in the median over the seeds is compared. All alternate.

Needs benchmarks/peers/setup sb3 cleanrl. CleanRL's script is fetched from GitHub, or is the --cleanrl FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEERS = Path(os.environ.get("SHOAL_PEERS") or ROOT / "build/peers")
CLEANRL_AT = "https://raw.githubusercontent.com/vwxyzjn/cleanrl/fe8d8a03/cleanrl/ppo.py"
LIMIT = 1800.0
"""Seconds that a run may take."""

# By Shoal's names; what is not here is everybody's default.
SETTINGS: dict[str, Any] = {
    "num_envs": 4,
    "total_steps": 500_000,
    "num_steps": 128,
    "batch_size": 128,
    "epochs": 4,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "linear",
    "clip_range": 0.2,
    "clip_range_schedule": "constant",
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "entropy_coef": 0.01,
    "value_coef": 0.25,  # of the squared error; CleanRL's 0.5 is of half of it
    "max_grad_norm": 0.5,
}
_TOLD = re.compile(r"(\d+) steps: mean return ([\d.]+)")
_EPISODE = re.compile(r"global_step=(\d+), episodic_return=\[?([\d.]+)")


def module_command(seed: int) -> list[str]:
    return [sys.executable, __file__, "--module", str(seed)]


def example_command(seed: int) -> list[str]:
    return [sys.executable, str(ROOT / "examples/ppo/main.py"), "--seed", str(seed), *_as_cleanrl()]


def cleanrl_command(script: Path, seed: int) -> list[str]:
    more = ["--seed", str(seed), "--no-clip-vloss", "--no-cuda"]
    return [str(PEERS / "cleanrl/bin/python"), str(script), *more, *_as_cleanrl()]


def sb3_command(seed: int) -> list[str]:
    script = ROOT / "benchmarks/peers/sb3_train.py"
    return [
        str(PEERS / "sb3/bin/python"),
        str(script),
        "--seed",
        str(seed),
        "--settings",
        json.dumps(SETTINGS),
        "--tell",
    ]


def _as_cleanrl() -> list[str]:
    """The settings by the flags that CleanRL and the example share."""
    rows = SETTINGS["num_envs"] * SETTINGS["num_steps"]
    flags = {
        "total-timesteps": SETTINGS["total_steps"],
        "num-envs": SETTINGS["num_envs"],
        "num-steps": SETTINGS["num_steps"],
        "learning-rate": SETTINGS["learning_rate"],
        "gamma": SETTINGS["gamma"],
        "gae-lambda": SETTINGS["gae_lambda"],
        "num-minibatches": rows // SETTINGS["batch_size"],
        "update-epochs": SETTINGS["epochs"],
        "clip-coef": SETTINGS["clip_range"],
        "ent-coef": SETTINGS["entropy_coef"],
        "vf-coef": 2 * SETTINGS["value_coef"],
        "max-grad-norm": SETTINGS["max_grad_norm"],
    }
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def train_module(seed: int) -> None:
    """`shoal.learn.train(policy=…)`, which tells its mean return after each update."""
    import torch
    from torch import nn
    from torch.distributions import Categorical

    import shoal

    def mlp(outputs: int, gain: float) -> nn.Sequential:
        layers = [nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
        for linear, its in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
            nn.init.orthogonal_(linear.weight, its)
            nn.init.zeros_(linear.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    class ActorCritic(nn.Module):
        def __init__(self, observation_space: Any, action_space: Any) -> None:
            super().__init__()
            self.critic, self.actor = mlp(1, 1.0), mlp(int(action_space.n), 0.01)

        def forward(self, obs: torch.Tensor) -> Any:
            policy = Categorical(logits=self.actor(obs), validate_args=False)
            action = policy.sample()
            return action, policy.log_prob(action), self.critic(obs).squeeze(-1)

        def evaluate_actions(self, obs: torch.Tensor, action: torch.Tensor) -> Any:
            policy = Categorical(logits=self.actor(obs), validate_args=False)
            return policy.log_prob(action), self.critic(obs).squeeze(-1), policy.entropy()

    told = SETTINGS | {"seed": seed, "eval_every": 0, "eval_envs": 1, "final_episodes": 0, "target_return": None}
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder,
        shoal.learn.Trainer(
            "CartPole-v1", policy=ActorCritic, preset="sb3", num_workers=0, run_dir=f"{folder}/run", **told
        ) as trainer,
    ):
        trainer.start()
        before = 0
        while not trainer.wait(0.005):
            status = trainer.status()
            if status["iteration"] > before and status["episodes"]:
                before = status["iteration"]
                print(f"{status['step']} steps: mean return {status['ep_return_mean']:.1f}", flush=True)


def timed(command: list[str], score: float, threads: int | None) -> dict[str, Any]:
    """How long the command ran until it scored, and its steps."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT / "python")}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    begin = time.perf_counter()
    last: deque[float] = deque(maxlen=100)
    steps, scored, lines = 0, False, deque[str](maxlen=20)
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=folder
        ) as process,
    ):
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(text)
            if told := _TOLD.search(text):
                steps, scored = int(told[1]), float(told[2]) >= score
            elif told := _EPISODE.search(text):
                last.append(float(told[2]))
                steps, scored = int(told[1]), len(last) == 100 and statistics.mean(last) >= score
            if scored or time.perf_counter() - begin > LIMIT:
                break
        seconds = time.perf_counter() - begin
        process.kill()
    if not steps:
        raise SystemExit(f"{' '.join(command)} told nothing:\n{''.join(lines)}")
    return {"wall": seconds, "steps": steps, "solved": scored}


def cleanrl_script(given: Path | None) -> Path | None:
    """None where it cannot be had."""
    if given is not None:
        return given.resolve()
    script = PEERS / "cleanrl/ppo.py"
    if not script.exists():
        try:
            urllib.request.urlretrieve(CLEANRL_AT, script)
        except OSError as error:
            print(f"left out: CleanRL's ppo.py cannot be fetched ({error}); --cleanrl names a copy", file=sys.stderr)
            return None
    return script


def sides_of(options: argparse.Namespace) -> dict[str, tuple[Any, int | None]]:
    """What makes the command of a seed, and the number of torch's threads."""
    sides: dict[str, tuple[Any, int | None]] = {}
    if "module" in options.sides:
        sides["shoal, module"] = (module_command, None)
    if "example" in options.sides:
        sides["shoal, example"] = (example_command, None)
    peers: dict[str, Any] = {}
    if "cleanrl" in options.sides and (script := cleanrl_script(options.cleanrl)):
        peers["cleanrl"] = lambda seed: cleanrl_command(script, seed)
    if "sb3" in options.sides:
        peers["sb3"] = sb3_command
    for name, command in peers.items():
        if not os.access(command(0)[0], os.X_OK):
            raise SystemExit(f"{name} is missing: run benchmarks/peers/setup {name} first, or give other --sides")
        sides |= {f"{name}, 1 thread": (command, 1), f"{name}, torch's threads": (command, None)}
    return sides


def verdict(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Everybody's line; and how many times as fast each of ours was as the faster run of each peer, seed by seed."""
    lines = []
    for name, rows in found.items():
        walls, steps = [row["wall"] for row in rows], statistics.median(row["steps"] for row in rows)
        solved = sum(row["solved"] for row in rows)
        lines.append(
            f"  {name:<24}{statistics.median(walls):7.1f} s ({min(walls):.1f} - {max(walls):.1f})   {steps:9,.0f} steps   "
            f"{solved} of {len(rows)} scored"
        )
    for peer in ("cleanrl", "sb3"):
        runs = [rows for name, rows in found.items() if name.startswith(peer)]
        if not runs:
            continue
        better = min(runs, key=lambda rows: statistics.median(row["wall"] for row in rows))
        for name in [name for name in found if name.startswith("shoal")]:
            ratios = [theirs["wall"] / ours["wall"] for theirs, ours in zip(better, found[name], strict=True)]
            spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f})"
            lines.append(f"  {name} is {spread} times as fast as {peer}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = ["module", "example", "cleanrl", "sb3"]
    parser.add_argument("--sides", nargs="+", choices=names, default=names)
    parser.add_argument("--score", type=float, default=475)
    parser.add_argument("--cleanrl", type=Path, metavar="FILE", help="CleanRL's ppo.py")
    parser.add_argument("--module", type=int, metavar="SEED", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.module is not None:
        train_module(options.module)
        return
    sides = sides_of(options)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for seed in options.seeds:
        for name, (command, threads) in sides.items():
            row = timed(command(seed), options.score, threads)
            found[name].append(row)
            outcome = "scored" if row["solved"] else "did not score"
            print(
                f"seed {seed}: {name} {row['wall']:.1f} s, {outcome} after {row['steps']:,} steps",
                file=sys.stderr,
                flush=True,
            )
    print(f"CartPole-v1, mean return of {options.score:g} over 100 training episodes, start-up included")
    print(*verdict(found), sep="\n")


if __name__ == "__main__":
    main()
