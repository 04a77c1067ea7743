#!/usr/bin/env python3
"""What a change of the source costs: this tree's speed beside another's, in turns.

    git worktree add ../before COMMIT && (cd ../before && ./shoal doctor)
    python benchmarks/two_trees.py ../before [steps queues workers service] [--rounds 7]

Each tree measures with its own programs and its own `.venv`: `./shoal bench`, and benchmarks/{queues,start_workers,serve}.py. A row is
the median, over the rounds, of how many times as fast this tree was as the other in the same round, with the range.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

STEPS = [
    *((workload, "shoal-process") for workload in ("cartpole", "noop", "image", "busy")),
    ("cartpole", "shoal-serial"),
    ("sleep-exp", "shoal-async"),
    ("noop", "shoal-async"),
    ("native-cartpole", "shoal-native"),
    ("native-cartpole", "shoal-native-async"),
    ("native-cartpole", "shoal-native-serial"),
]
QUEUES = ["int", "dict", "list", "bytes 64K", "array 64K", "array 1M", "tensor 64K", "kept tensor 64K"]
RANGE = r"([\d,.]+) \([\d,. –-]+\)"

Rates = Iterator[tuple[str, float]]


def output_of(tree: Path, *command: str) -> str:
    done = subprocess.run(
        [tree / ".venv/bin/python", *command], cwd=tree, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{tree}: {' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def number(text: str) -> float:
    return float(text.replace(",", ""))


def steps(tree: Path) -> Rates:
    for num_envs in (8, 64):
        for workload, contestant in STEPS:
            chosen = f"--workload={workload} --num-envs={num_envs} --contestant={contestant}"
            told = output_of(tree, ".venv/bin/shoal", "bench", *chosen.split(), "--rounds=1", "--seconds=0.5", "--json")
            (row,) = json.loads(told.splitlines()[-1])["rates"]
            yield f"{workload}, {contestant}, {num_envs} environments", row["median"]


def queues(tree: Path) -> Rates:
    told = output_of(tree, "benchmarks/queues.py", *QUEUES, "--contestant=shoal", "--rounds=1", "--seconds=0.3")
    for name, rate, trip in re.findall(rf"\| ([^|]+) \| shoal \| {RANGE} /s \| {RANGE} µs", told):
        yield f"{name}, stream", number(rate)
        yield f"{name}, round trip", 1e6 / number(trip)


def workers(tree: Path) -> Rates:
    told = output_of(tree, "benchmarks/start_workers.py", "--rounds=1", "--kinds", "shoal")
    yield "64 workers ready", 1 / number(re.search(rf"shoal +{RANGE.replace(' ', ' s ', 1)}", told)[1])


def service(tree: Path) -> Rates:
    told = output_of(
        tree, "benchmarks/serve.py", "--rounds=1", "--seconds=1", *(f"--clients={clients}" for clients in (1, 8, 64))
    )
    for clients, rate in re.findall(r"^ +(\d+) +shoal +([\d,]+)", told, re.MULTILINE):
        yield f"requests, {clients} clients", number(rate)


PARTS: dict[str, Callable[[Path], Rates]] = {
    "steps": steps,
    "queues": queues,
    "workers": workers,
    "service": service,
}


def in_turns(trees: Iterable[Path], part: Callable[[Path], Rates], rounds: int) -> dict[str, list[float]]:
    """For each row, its ratio of the first tree to the second in each round."""
    ratios: dict[str, list[float]] = {}
    for turn in range(rounds):
        first, second = trees
        measured = {tree: dict(part(tree)) for tree in ((first, second) if turn % 2 == 0 else (second, first))}
        for row, rate in measured[first].items():
            ratios.setdefault(row, []).append(rate / measured[second][row])
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="the other checkout, built")
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if unknown := [name for name in options.part if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: {', '.join(PARTS)}")
    print("| measured | this tree, times the other |\n|---|---|")
    for name in options.part or PARTS:
        for row, ratios in in_turns((HERE, options.tree.resolve()), PARTS[name], options.rounds).items():
            low, high = min(ratios), max(ratios)
            print(f"| {row} | {statistics.median(ratios):.2f} ({low:.2f} – {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
