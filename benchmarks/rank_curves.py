#!/usr/bin/env python3
"""Whether PPO learns the same on any number of ranks: what it has reached after as many steps, over seeds.

    python benchmarks/rank_curves.py [--ranks 1 2 4] [--seeds 0 1 2 3 4 5 6 7 8 9] [--points 6] [--task CartPole-v1] [--steps 50000]

Each run has the preset's settings, the same number of environments whatever its ranks, and nothing that ends it early. Told are, at some
numbers of steps, the interquartile mean over the seeds of the mean return of evaluation episodes, with its 95 % bootstrap interval,
and whether the intervals of all numbers of ranks meet there. Numbers of ranks alternate within a seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import shoal
from shoal.bench.learning import interquartile_mean, interval


def curve(task: str, ranks: int, seed: int, steps: int, points: int) -> dict[int, float]:
    """The mean return of 20 episodes at each of the points, by the steps done."""
    settings = shoal.learn.preset(task)
    num_envs = -(-int(settings.get("num_envs", 8)) // 4) * 4  # which 4 ranks have alike
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        shoal.learn.train(
            f"shoal/{task}",
            nproc=ranks,
            preset=task,
            seed=seed,
            num_envs=num_envs,
            num_workers=0,
            total_steps=steps,
            target_return=None,
            eval_every=steps // points,
            eval_episodes=20,
            final_episodes=0,
            save_every_seconds=1e9,
            run_dir=f"{folder}/run",
        )
        records = [json.loads(line) for line in (Path(folder) / "run/progress.jsonl").read_text().splitlines()]
    return {record["step"]: record["eval/mean_reward"] for record in records if "eval/mean_reward" in record}


def lines_of(found: dict[int, list[dict[int, float]]]) -> list[str]:
    """Args: found: by ranks, each seed's curve; all of them have the same steps."""
    lines = []
    for step in next(iter(found.values()))[0]:
        parts, ranges = [], []
        for ranks, curves in found.items():
            scores = [its[step] for its in curves]
            low, high = interval(scores)
            ranges.append((low, high))
            parts.append(f"{ranks}: {interquartile_mean(scores):7.1f} ({low:.1f} - {high:.1f})")
        meet = max(low for low, _ in ranges) <= min(high for _, high in ranges)
        lines.append(f"  {step:9,} steps   {'   '.join(parts)}   {'meet' if meet else 'APART'}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--task", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--points", type=int, default=6)
    options = parser.parse_args()
    found: dict[int, list[dict[int, float]]] = {ranks: [] for ranks in options.ranks}
    for seed in options.seeds:
        for ranks in options.ranks:
            found[ranks].append(curve(options.task, ranks, seed, options.steps, options.points))
            print(f"seed {seed}, {ranks} ranks: {found[ranks][-1]}", file=sys.stderr, flush=True)
    print(f"{options.task}, {len(options.seeds)} seeds, by ranks: interquartile mean of the return (95 %)")
    print(*lines_of(found), sep="\n")


if __name__ == "__main__":
    main()
