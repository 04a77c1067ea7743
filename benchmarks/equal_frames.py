#!/usr/bin/env python3
"""What algorithms reach with the same number of environment steps, and the same settings, seed by seed.

    python benchmarks/equal_frames.py [--tasks CartPole-v1 Acrobot-v1 LunarLander-v3] [--seeds 0 1 2 3 4 5 6 7 8 9]
        [--sides ppo ppo-overlap appo appo-preset] [--frames N]

"ppo" is PPO with Shoal's preset of the task; "ppo-overlap" the same with `overlap=True`; "appo" is APPO with these settings as well, its
own options (max_lag 1, V-trace) as they come; "appo-preset" is its own preset, of another number of epochs or minibatches, where
there is one; "a2c" and "a2c-overlap" are A2C's preset, where there is one. Nothing ends a run early: its score is the mean return of 100
episodes with the last policy. Told are, for each task, the interquartile mean over the seeds with its 95 % bootstrap interval, as
`shoal bench learning` has them, and whether each side's mean lies in the first side's interval, or above. Native environments, where
there are: `--env gymnasium` takes Gymnasium's own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from typing import Any

import shoal
from shoal.bench.learning import interquartile_mean, interval

FRAMES = {"CartPole-v1": 50_000, "Acrobot-v1": 100_000, "LunarLander-v3": 300_000}
"""At which PPO's preset has learned most of what it learns."""
SIDES = ("ppo", "ppo-overlap", "appo", "appo-preset", "a2c", "a2c-overlap")
NATIVE = ("CartPole-v1", "Acrobot-v1")
EPISODES = 100


def told(side: str, task: str) -> dict[str, Any] | None:
    """The arguments of shoal.learn.train; None where the side has no settings for the task."""
    algorithm, _, how = side.partition("-")
    options: dict[str, Any] = {"algorithm": algorithm}
    if side == "appo":
        names = set(shoal.learn.config_names("appo"))
        settings = {name: value for name, value in shoal.learn.preset(task).items() if name in names}
        options |= settings | {"algorithm": "appo", "preset": "default"}
    elif task in shoal.learn.preset_names(algorithm):
        options |= {"preset": task}
    else:
        return None
    return options | ({"overlap": True} if how == "overlap" else {})


def score(task: str, env: str, side: str, seed: int, frames: int, num_workers: int | None) -> float | None:
    options = told(side, task)
    if options is None:
        return None
    options |= {"total_steps": frames, "seed": seed, "target_return": None, "num_workers": num_workers}
    options |= {"eval_every": 0, "eval_episodes": EPISODES, "final_episodes": 0, "save_every_seconds": 1e9}
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        mean = shoal.learn.train(env, run_dir=f"{folder}/run", **options).mean_return
    assert mean is not None
    return mean


def lines_of(found: dict[str, list[float]]) -> list[str]:
    first, *_ = found
    low, _ = interval(found[first])
    lines = []
    for side, scores in found.items():
        middle, (below, above) = interquartile_mean(scores), interval(scores)
        text = (
            f"  {side:<12} {middle:8.1f} ({below:.1f} - {above:.1f})   worst {min(scores):.1f}, best {max(scores):.1f}"
        )
        if side != first:
            text += f"   {'in or above' if middle >= low else 'BELOW'} {first}'s interval"
        lines.append(text)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(FRAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES[:4]))
    parser.add_argument("--frames", type=int, help="of each run [default: the task's]")
    parser.add_argument("--env", choices=["native", "gymnasium"], default="native")
    parser.add_argument("--num-workers", type=int)
    options = parser.parse_args()
    for task in options.tasks:
        frames = options.frames or FRAMES[task]
        env = f"shoal/{task}" if options.env == "native" and task in NATIVE else task
        found: dict[str, list[float]] = {}
        for seed in options.seeds:
            for side in options.sides:
                reached = score(task, env, side, seed, frames, options.num_workers)
                if reached is not None:
                    found.setdefault(side, []).append(reached)
                    print(f"{task}, seed {seed}, {side}: {reached:.1f}", file=sys.stderr, flush=True)
        print(f"{env}, {frames:,} steps, {len(options.seeds)} seeds: interquartile mean (95 %)")
        print(*lines_of(found), sep="\n")
        print(json.dumps({"task": task, "frames": frames, "scores": found}), flush=True)


if __name__ == "__main__":
    main()
