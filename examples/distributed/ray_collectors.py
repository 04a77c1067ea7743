"""Trains CartPole-v1 by APPO in this process, from collectors that are actors of Ray:

    python ray_collectors.py --collectors 4 --cpus 1 --run-dir run

Ray places the actors, by the options that are given here, and starts one again when it is lost. With `--address auto` they are on
the nodes of the cluster that this machine belongs to. Needs ray, and nothing but Shoal on the nodes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ray

import shoal.compat.ray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collectors", type=int, default=2)
    parser.add_argument(
        "--cpus", type=float, default=1, help="of each collector: as many processes step its environments"
    )
    parser.add_argument("--address", help="of a cluster; by default Ray starts one on this machine")
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--run-dir", type=Path, default=Path("ray-run"))
    options = parser.parse_args()
    ray.init(address=options.address)
    seen: set[Any] = set()

    def show(status: dict[str, Any]) -> None:
        if status["iteration"] // 50 not in seen and status["ep_return_mean"] is not None:
            seen.add(status["iteration"] // 50)
            print(f"{status['step']:>9,} steps, {status['collectors']} collectors: {status['ep_return_mean']:.1f}")

    result = shoal.compat.ray.train(
        "CartPole-v1",
        "appo",
        num_collectors=options.collectors,
        remote_configs={"num_cpus": options.cpus, "scheduling_strategy": "SPREAD"},
        seed=1,
        total_steps=options.total_steps,
        run_dir=options.run_dir,
        callback=show,
    )
    print(f"{result.steps:,} steps: mean return {result.mean_return:.1f}")


if __name__ == "__main__":
    main()
