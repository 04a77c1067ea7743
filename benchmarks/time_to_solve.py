#!/usr/bin/env python3
"""Wall time until CartPole-v1 is solved: `shoal train` against Stable-Baselines3's PPO or A2C, start-up included.

    python benchmarks/time_to_solve.py [--seeds 0 1 2] [--settings zoo preset a2c a3c impala appo] [--env CartPole-v1]

Both sides get the same settings: rl-baselines3-zoo's tuned ones of PPO for CartPole-v1 ("zoo"), those of Shoal's preset, which
was tuned from them and differs in the size of a minibatch ("preset"), and rl-baselines3-zoo's of A2C ("a2c"), which are
Stable-Baselines3's defaults with 8 environments. "a3c", "impala" and "appo", of which Stable-Baselines3 has none, are Shoal's presets,
alone, and only where they are named. Both have the same stopping rule: after every 5,000 environment
steps (the next update that completes them) 10 evaluation episodes with the most probable actions; when their mean is at least 475,
100 fresh episodes, whose mean has to be as well. Stable-Baselines3 runs with torch's default number of threads and with one; it is
compared by the one that is faster in the median over the seeds. The clock runs from the start of the process to its end. All alternate.
Needs benchmarks/peers/setup.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SB3 = Path(os.environ.get("SHOAL_PEERS") or ROOT / "build/peers") / "sb3/bin/python"
TARGET, EVERY, FEW, MANY = 475, 5_000, 10, 100

# By Shoal's names. The learning rate and the clip range fall linearly to 0 at the last of the steps.
ZOO: dict[str, Any] = {
    "num_envs": 8,
    "total_steps": 100_000,
    "num_steps": 32,
    "batch_size": 256,
    "epochs": 20,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "clip_range": 0.2,
    "clip_range_schedule": "linear",
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "entropy_coef": 0.0,
}
A2C: dict[str, Any] = {
    "algorithm": "a2c",
    "num_envs": 8,
    "total_steps": 500_000,
    "num_steps": 5,
    "learning_rate": 7e-4,
    "learning_rate_schedule": "constant",
    "gamma": 0.99,
    "gae_lambda": 1.0,
    "entropy_coef": 0.0,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "optimizer": "rmsprop",
    "rmsprop_alpha": 0.99,
    "rmsprop_eps": 1e-5,
    "advantage_normalization": "none",
}
A3C: dict[str, Any] = {
    "algorithm": "a3c",
    "num_envs": 8,
    "total_steps": 500_000,
    "num_steps": 16,
    "gae_lambda": 0.95,
    "learning_rate_schedule": "linear",
    "entropy_coef": 0.0,
}
IMPALA: dict[str, Any] = {
    "algorithm": "impala",
    "num_envs": 8,
    "total_steps": 500_000,
    "learning_rate_schedule": "linear",
    "entropy_coef": 0.0,
}
APPO: dict[str, Any] = {
    "algorithm": "appo",
    "num_envs": 8,
    "total_steps": 200_000,
    "num_steps": 32,
    "batch_size": 128,
    "epochs": 10,
    "learning_rate": 1e-3,
    "learning_rate_schedule": "linear",
    "clip_range": 0.2,
    "clip_range_schedule": "linear",
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "entropy_coef": 0.0,
    "max_grad_norm": 0.5,
    "adam_eps": 1e-5,
}
ALONE = {"a3c": A3C, "impala": IMPALA, "appo": APPO}
SETTINGS = {"zoo": ZOO, "preset": ZOO | {"batch_size": 128}, "a2c": A2C} | ALONE
TITLES = {
    "zoo": "PPO with rl-baselines3-zoo's settings",
    "preset": "PPO with the settings of Shoal's preset",
    "a2c": "A2C with rl-baselines3-zoo's settings",
    "a3c": "A3C with the settings of Shoal's preset",
    "impala": "IMPALA with the settings of Shoal's preset",
    "appo": "APPO with the settings of Shoal's preset",
}
THREADS = {"sb3, 1 thread": 1, "sb3, torch's threads": None}


def shoal_command(env: str, settings: dict[str, Any], seed: int, run_dir: str, more: list[str]) -> list[str]:
    stopping = {"eval_every": EVERY, "eval_episodes": FEW, "final_episodes": MANY, "target_return": TARGET}
    command = [*os.environ.get("SHOAL_BENCH_COMMAND", str(ROOT / "shoal")).split(), "train", env, "--json", "--quiet"]
    command += ["--seed", str(seed), "--run-dir", run_dir]
    for name, value in (settings | stopping).items():
        command += ["--set", f"{name}={value}"]
    return command + more


def sb3_command(settings: dict[str, Any], seed: int, threads: int | None) -> list[str]:
    options = {
        "seed": seed,
        "settings": json.dumps(settings),
        "target": TARGET,
        "eval-every": EVERY,
        "eval-episodes": FEW,
        "final-episodes": MANY,
    }
    if threads is not None:
        options["threads"] = threads
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [str(SB3), str(ROOT / "benchmarks/peers/sb3_train.py"), *words]


def timed(command: list[str]) -> dict[str, Any]:
    """The closing JSON line of a command, and how long it ran."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": seconds}


def run_shoal(env: str, settings: dict[str, Any], seed: int, more: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        found = timed(shoal_command(env, settings, seed, f"{scratch}/run", more))
    return found | {"solved": found["mean_return"] >= TARGET}


def line(name: str, rows: list[dict[str, Any]]) -> str:
    walls = [row["wall"] for row in rows]
    solved = sum(row["solved"] for row in rows)
    steps = statistics.median(row["steps"] for row in rows)
    text = f"  {name:<21}{statistics.median(walls):7.2f} s ({min(walls):.2f} - {max(walls):.2f})"
    return f"{text}   {steps:9,.0f} steps   {solved} of {len(rows)} solved"


def verdict(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Everybody's line; and how many times as fast Shoal was as the faster of the others, seed by seed."""
    lines = [line(name, found) for name, found in rows.items()]
    others = {name: found for name, found in rows.items() if name != "shoal"}
    if others:
        better = min(others, key=lambda name: statistics.median(row["wall"] for row in others[name]))
        ratios = [t["wall"] / m["wall"] for t, m in zip(others[better], rows["shoal"], strict=True)]
        spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f})"
        lines.append(f"  shoal is {spread} times as fast as {better}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--settings", nargs="+", choices=SETTINGS, default=[which for which in SETTINGS if which not in ALONE]
    )
    parser.add_argument("--env", default="CartPole-v1", help="what Shoal trains on: also shoal/CartPole-v1")
    parser.add_argument("--no-sb3", action="store_true", help="time Shoal alone")
    parser.add_argument("shoal", nargs="*", help="after --: further arguments of `shoal train`")
    options = parser.parse_args()
    if not options.no_sb3 and not os.access(SB3, os.X_OK):
        raise SystemExit("Stable-Baselines3 is missing: run benchmarks/peers/setup first, or give --no-sb3")

    threads = {} if options.no_sb3 else THREADS
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        which: {name: [] for name in ("shoal", *(() if which in ALONE else threads))} for which in options.settings
    }
    for seed in options.seeds:
        for which, rows in found.items():
            settings = SETTINGS[which]
            rows["shoal"].append(run_shoal(options.env, settings, seed, options.shoal))
            report(seed, which, "shoal", rows["shoal"][-1])
            for name, count in threads.items() if which not in ALONE else ():
                rows[name].append(timed(sb3_command(settings, seed, count)))
                report(seed, which, name, rows[name][-1])
    print(f"{options.env}, mean return of at least {TARGET} over {MANY} episodes, start-up included")
    for which, rows in found.items():
        print(f"{TITLES[which]}:", *verdict(rows), sep="\n")


def report(seed: int, which: str, name: str, row: dict[str, Any]) -> None:
    outcome = f"solved after {row['steps']:,} steps" if row["solved"] else f"not solved within {row['steps']:,} steps"
    print(f"seed {seed}, {which}: {name} {row['wall']:.2f} s, {outcome}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
