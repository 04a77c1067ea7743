#!/usr/bin/env python3
"""Wall time until CartPole-v1 is solved: `shoal train` against Stable-Baselines3's PPO, start-up included.

    python benchmarks/time_to_solve.py [--seeds 0 1 2] [--env CartPole-v1]

Both get 8 environments, rl-baselines3-zoo's tuned settings of PPO for CartPole-v1 and the same stopping rule: after every
5,000 environment steps (the next update that completes them) 10 evaluation episodes with the most probable actions; when their
mean is at least 475, 100 fresh episodes, whose mean has to be as well. The clock runs from the start of the process to its end.
The two alternate. Needs benchmarks/peers/setup.
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
TOTAL_STEPS = 100_000


def shoal_command(env: str, seed: int, run_dir: str, more: list[str]) -> list[str]:
    settings = {"eval_every": EVERY, "eval_episodes": FEW, "final_episodes": MANY, "target_return": TARGET}
    command = [*os.environ.get("SHOAL_BENCH_COMMAND", str(ROOT / "shoal")).split(), "train", env, "--json", "--quiet"]
    command += ["--seed", str(seed), "--total-steps", str(TOTAL_STEPS), "--run-dir", run_dir]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command + more


def sb3_command(seed: int) -> list[str]:
    options = {
        "seed": seed,
        "total-steps": TOTAL_STEPS,
        "target": TARGET,
        "eval-every": EVERY,
        "eval-episodes": FEW,
        "final-episodes": MANY,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [str(SB3), str(ROOT / "benchmarks/peers/sb3_ppo.py"), *words]


def timed(command: list[str]) -> dict[str, Any]:
    """The closing JSON line of a command, and how long it ran."""
    begin = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1800)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": seconds}


def run_shoal(options: argparse.Namespace, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        found = timed(shoal_command(options.env, seed, f"{scratch}/run", options.shoal))
    return found | {"solved": found["mean_return"] >= TARGET}


def line(name: str, rows: list[dict[str, Any]]) -> str:
    walls = [row["wall"] for row in rows]
    solved = sum(row["solved"] for row in rows)
    steps = statistics.median(row["steps"] for row in rows)
    text = f"  {name:<7}{statistics.median(walls):7.2f} s ({min(walls):.2f} - {max(walls):.2f})"
    return f"{text}   {steps:9,.0f} steps   {solved} of {len(rows)} solved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--env", default="CartPole-v1", help="what Shoal trains on: also shoal/CartPole-v1")
    parser.add_argument("--no-sb3", action="store_true", help="time Shoal alone")
    parser.add_argument("shoal", nargs="*", help="after --: further arguments of `shoal train`")
    options = parser.parse_args()
    if not options.no_sb3 and not os.access(SB3, os.X_OK):
        raise SystemExit("Stable-Baselines3 is missing: run benchmarks/peers/setup first, or give --no-sb3")

    mine: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for seed in options.seeds:
        mine.append(run_shoal(options, seed))
        report(seed, "shoal", mine[-1])
        if not options.no_sb3:
            theirs.append(timed(sb3_command(seed)))
            report(seed, "sb3", theirs[-1])
    print(f"{options.env}, mean return of at least {TARGET} over {MANY} episodes, start-up included")
    print(line("shoal", mine))
    if theirs:
        ratios = [t["wall"] / m["wall"] for t, m in zip(theirs, mine, strict=True)]
        print(line("sb3", theirs))
        print(f"  shoal is {statistics.median(ratios):.1f} ({min(ratios):.1f} - {max(ratios):.1f}) times as fast")


def report(seed: int, name: str, row: dict[str, Any]) -> None:
    outcome = f"solved after {row['steps']:,} steps" if row["solved"] else f"not solved within {row['steps']:,} steps"
    print(f"seed {seed}: {name} {row['wall']:.2f} s, {outcome}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
