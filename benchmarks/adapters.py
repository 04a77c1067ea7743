#!/usr/bin/env python3
"""The figures of docs/migrating, from what the adapters' benchmarks print with --json.

    .venv/bin/python benchmarks/sb3.py --json >build/bench/sb3.json
    .venv/bin/python benchmarks/adapters.py --keep build/bench/sb3.json…     keeps them in benchmarks/results/adapters
    .venv/bin/python benchmarks/adapters.py --write                          the pages' tables anew, from all that is kept

A page's results are kept in the place of those that it had under the same titles.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from pathlib import Path
from typing import Any

from marked import write_between

from shoal.bench.machine import cpu_name

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks/results/adapters/results.json"
BEGIN, END = "<!-- figures: made by benchmarks/adapters.py -->", "<!-- end of figures -->"

Key = tuple[str, str]
"""Page and title."""


def results_of(path: Path) -> dict[Key, dict[str, Any]]:
    """Of what a benchmark printed: a line of JSON for each, among lines for people."""
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith("{"):
            result = json.loads(line)
            found[result["page"], result["title"]] = result
    if not found:
        raise SystemExit(f"{path} has no result: run the benchmark with --json")
    return found


def kept() -> dict[Key, dict[str, Any]]:
    if not KEPT.exists():
        return {}
    return {(result["page"], result["title"]): result for result in json.loads(KEPT.read_text())}


def keep(found: dict[Key, dict[str, Any]], on: dict[str, Any]) -> None:
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    results = kept() | {key: result | on for key, result in found.items()}
    KEPT.write_text("[\n" + ",\n".join(json.dumps(results[key]) for key in sorted(results)) + "\n]\n")


def this_machine() -> dict[str, Any]:
    cpus = len(os.sched_getaffinity(0))
    return {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "cpus": cpus}


def number(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def table(result: dict[str, Any]) -> str:
    """Of one result: its first side in bold, and how many times as fast that was as each other (or each other as that)."""
    lines = [f"| {result['title']} | steps/s | × (from – to) |", "|---|---|---|"]
    for i, (side, row) in enumerate(result["sides"].items()):
        rate = f"{row['steps_per_second']:,}"
        spread = f"{number(row[result['ratio']])} ({number(row['from'])} – {number(row['to'])})"
        lines.append(f"| {side} | {rate} | {spread} |" if i else f"| **{side}** | {rate} | |")
    return "\n".join(lines)


MEANS = {
    "shoal_is": "× is how many times as fast the first one, Shoal's, was: above 1 it was faster",
    "times_theirs": "× is how many times as fast as the first one, the other library's, it was: above 1 Shoal's was faster",
}


def figures(results: list[dict[str, Any]]) -> str:
    """What stands on a page."""
    machines = dict.fromkeys(f"{each['cpu']}, {each['cpus']} CPUs, {each['date']}" for each in results)
    means = "; ".join(dict.fromkeys(MEANS[each["ratio"]] for each in results))
    rounds = " or ".join(dict.fromkeys(str(each["rounds"]) for each in results))
    about = f"{'; '.join(machines)}. {means}, the median of {rounds} rounds that alternated, and their range."
    return "\n\n".join([about, *map(table, results)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="*", metavar="RESULT.json")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/results/adapters")
    parser.add_argument("--write", action="store_true", help="into docs/migrating")
    options = parser.parse_args()
    if not options.results and not options.write:
        parser.error("name the files of results, or give --write")
    found: dict[Key, dict[str, Any]] = {}
    for path in options.results:
        found |= results_of(path)
    if options.keep:
        keep(found, this_machine())
    elif found:
        print(figures([result | this_machine() for result in found.values()]))
    if options.write:
        results = list(kept().values())
        for page in dict.fromkeys(result["page"] for result in results):
            own = [result for result in results if result["page"] == page]
            write_between(ROOT / "docs/migrating" / f"{page}.md", BEGIN, END, figures(own))


if __name__ == "__main__":
    main()
