"""One seed by Shoal, as a process of its own: its argument, a task in JSON, is what `suite` writes; it ends with a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

EPISODES = 100
EVALUATION_SEED = 1_000_000
"""Of the episodes that the last policy is judged by: not those of training."""
APART = 1_000
"""Between the seeds of two runs' episodes: no two runs are judged by the same ones."""
SAVE_EVERY = 600.0
"""Seconds of training that a run that is kept may have to make again: saving a replay takes time, which is measured."""


def train(task: dict[str, Any]) -> dict[str, Any]:
    import shoal

    run_dir = Path(task["run_dir"])
    begin = time.perf_counter()
    result = shoal.learn.train(
        task["env"],
        task["algorithm"],
        preset=task["preset"],
        seed=task["seed"],
        num_workers=task["num_workers"],
        run_dir=run_dir,
        resume="auto",
        total_steps=task["steps"],
        target_return=None,  # all steps, whoever is there earlier
        final_episodes=0,  # which would be of the best policy
        save_every_seconds=SAVE_EVERY if task["kept"] else 1e9,
    )
    seconds = max(time.perf_counter() - begin, result.seconds)  # the latter has what a run had that went on
    last = shoal.learn.evaluate(
        run_dir, EPISODES, EVALUATION_SEED + APART * task["seed"], which="last", num_envs=10, num_workers=0
    )
    records = [json.loads(line) for line in (run_dir / "progress.jsonl").read_text().splitlines()]
    return {
        "steps": result.steps,
        "seconds": seconds,
        "return": last.mean_return,
        "training": _curve(records, "rollout/ep_rew_mean"),
        "evaluations": _curve(records, "eval/mean_reward"),
    }


def _curve(records: list[dict[str, Any]], name: str, most: int = 100) -> list[list[float]]:
    """[steps, value] pairs: not more than `most` and the last one."""
    pairs = [[record["step"], record[name]] for record in records if record.get(name) is not None]
    every = max(1, len(pairs) // most)
    return pairs[:-1:every] + pairs[-1:]


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
