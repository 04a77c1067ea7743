#!/usr/bin/env python3
"""Weights by version: `Collector.update_weights()` a thousand times a second, while collectors act with them and others copy them.

    python benchmarks/weights.py [--reads 1000000] [--updates-per-second 1000] [--readers 2] [--collectors 2] [--floats 10240]

Every weight of version v is v. Readers are processes that copy the newest set again and again, `--reads` times between them, and look
at each number of each copy. The collectors' policy looks at all of its weights in every call, and the rows tell what it saw. A set of
two versions, one that is older than the one before, or another than the version that is told with it is an error: status 1.
Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
BATCHES_PER_SECOND = 50
"""That are taken from the collectors, at most."""


def read(fd: int, reads: int) -> dict[str, int]:
    """What one reader saw."""
    from shoal import _core

    store = _core.collect.WeightStore.attach(fd)
    flat = np.empty(store.nbytes, np.uint8)
    weights = flat.view(np.float32)
    torn = older = last = versions = 0
    for _ in range(reads):
        version = store.read(flat)
        torn += not (weights == version).all()
        older += version < last
        versions += version != last
        last = version
    return {"reads": reads, "torn": torn, "older": older, "versions": versions}


def module(floats: int) -> Any:
    import torch

    class Versioned(torch.nn.Module):
        """As log-probability the least of its weights, as value how much more the greatest is."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(floats))

        def forward(self, obs: Any) -> Any:
            least, greatest = self.weight.aminmax()
            return obs[:, 0].long() * 0, least.expand(len(obs)), (greatest - least).expand(len(obs))

    return Versioned()


class Rows:
    """What the collectors' rows tell."""

    def __init__(self) -> None:
        self.count = self.mixed = self.others = self.older = 0
        self.versions: set[int] = set()
        self._last: dict[int, int] = {}  # of the environments

    def add(self, batch: dict[str, Any]) -> None:
        version, env = batch["policy_version"], int(batch["env_id"].flatten()[0])
        self.count += version.size
        self.mixed += int((batch["value"] != 0).sum())
        self.others += int((batch["log_prob"] != version).sum())
        self.older += int((version < self._last.get(env, 0)).sum())
        self._last[env] = int(version.max())
        self.versions.update(np.unique(version).tolist())


def update(collector: Any, policy: Any) -> None:
    policy.weight.data.fill_(collector.policy_version + 1)
    collector.update_weights()


def publish(collector: Any, policy: Any, per_second: float, go_on: Callable[[], bool], rows: Rows) -> tuple[int, float]:
    """New weights at this rate, and a batch now and then; returns how many, and in how many seconds."""
    updates, begin = 0, time.perf_counter()
    due = begin
    while go_on():
        update(collector, policy)
        updates += 1
        if updates % max(1, round(per_second / BATCHES_PER_SECOND)) == 0:
            rows.add(next(collector))
        due = max(due + 1 / per_second, time.perf_counter() - 0.1)  # what is far behind is not made up for
        time.sleep(max(0.0, due - time.perf_counter()))
    return updates, time.perf_counter() - begin


def measured(options: argparse.Namespace) -> dict[str, Any]:
    import shoal

    policy, rows = module(options.floats), Rows()
    with ExitStack() as stack:
        collector = stack.enter_context(
            shoal.Collector(
                "shoal/CartPole-v1", policy, num_envs=4 * options.collectors, frames_per_batch=16 * options.collectors,
                mode="multi_async", num_collectors=options.collectors, output="numpy",
            )
        )  # fmt: skip
        update(collector, policy)  # makes the store
        fd = collector._source._store.fd
        share = -(-options.reads // options.readers)
        command = [sys.executable, __file__, "--read", str(fd), "--reads", str(share)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        readers = [
            stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[fd], env=environment)
            )
            for _ in range(options.readers)
        ]
        stack.callback(lambda: [reader.kill() for reader in readers])
        updates, seconds = publish(
            collector,
            policy,
            options.updates_per_second,
            lambda: any(reader.poll() is None for reader in readers),
            rows,
        )
        told = [json.loads(reader.communicate()[0]) for reader in readers]
    seen = {name: sum(one[name] for one in told) for name in told[0]}
    return {
        "reads": seen["reads"],
        "torn": seen["torn"] + rows.mixed,
        "older": seen["older"] + rows.older,
        "of_another_version": rows.others,
        "versions_read": seen["versions"],
        "updates": updates,
        "updates_per_second": round(updates / seconds),
        "rows": rows.count,
        "versions_acted_with": len(rows.versions),
        "floats": options.floats,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=1_000_000)
    parser.add_argument("--updates-per-second", type=float, default=1000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--collectors", type=int, default=2)
    parser.add_argument("--floats", type=int, default=10_240, help="a multiple of 16")
    parser.add_argument("--read", type=int, metavar="FD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        print(json.dumps(read(options.read, options.reads)))
        return
    found = measured(options)
    print(json.dumps(found))
    if found["torn"] or found["older"] or found["of_another_version"]:
        raise SystemExit("a reader saw a set of weights that was never published, or an older one than before")


if __name__ == "__main__":
    main()
