#!/usr/bin/env python3
"""The tables of benchmarks/README.md, from what runs of `shoal bench --json` ended with.

    python benchmarks/tables.py RESULT.json…            prints them
    python benchmarks/tables.py --write RESULT.json…    replaces those in benchmarks/README.md

First each library's best mode at each workload and number of environments; then a table for each of these, in the order of the files. Ratios are of one run each: where several files
share a table, its first line has the rate of the one compared with in each of them, and of all else the last file counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "benchmarks/README.md"
BEGIN, END = "<!-- tables: made by benchmarks/tables.py -->", "<!-- end of tables -->"


def last_line(path: Path) -> dict[str, Any]:
    """The closing line of a run; standard output may hold more before it."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not {"rates", "ratios", "machine"} <= set(found):
        raise SystemExit(f"{path} does not end with the JSON line of `shoal bench --json`")
    return found


def rate(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"


def ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(found: dict[str, Any], write: Callable[[float], str]) -> str:
    return f"{write(found['median'])} ({write(found['least'])} – {write(found['most'])})"


def row(found: dict[str, Any], ratios: dict[str, Any] | None) -> str:
    """Of a contestant that is compared with another, or failed."""
    name = found["contestant"]
    if "error" in found:
        return f"| {name} | failed: {found['error']} | | |"
    settings = ", ".join(f"{key}={value}" for key, value in found["settings"].items())
    return f"| {name} | {spread(found, rate)} | {spread(ratios, ratio) if ratios else ''} | {settings} |"


def tables(results: list[dict[str, Any]]) -> str:
    sys.path.insert(0, str(ROOT / "python"))
    from shoal.bench.workloads import WORKLOADS

    subjects: dict[tuple[str, int], dict[str, list[str]]] = {}
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for result in results:
        ratios = {(r["workload"], r["num_envs"], r["peer"]): r for r in result["ratios"]}
        compared_with = {(r["workload"], r["num_envs"]): r["subject"] for r in result["ratios"]}
        for found in result["rates"]:
            key, name = (found["workload"], found["num_envs"]), found["contestant"]
            rows.setdefault(key, {})
            if name == compared_with.get(key):
                subjects.setdefault(key, {}).setdefault(name, []).append(spread(found, rate))
            else:
                rows[key][name] = row(found, ratios.get((*key, name)))
    parts = [about(results), summary(results)]
    for (workload, num_envs), lines in rows.items():
        parts.append(f"**{WORKLOADS[workload].title}, {num_envs} environments**")
        heading = ["| | steps/s (from – to) | × (from – to) | best with |", "|---|---|---|---|"]
        first = [f"| **{name}** | {'; '.join(of)} | | |" for name, of in subjects.get((workload, num_envs), {}).items()]
        parts.append("\n".join([*heading, *first, *lines.values()]))
    return "\n\n".join(parts)


def summary(results: list[dict[str, Any]]) -> str:
    """How many times as fast the subject was as each library in its best mode."""
    from shoal.bench.roster import CONTESTANTS, PEERS
    from shoal.bench.workloads import WORKLOADS

    found: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = {}
    rates = {}
    for result in results:
        for measured in result["rates"]:
            rates[measured["workload"], measured["num_envs"], measured["contestant"]] = measured.get("median")
        for compared in result["ratios"]:
            best = found.setdefault((compared["workload"], compared["num_envs"], compared["subject"]), {})
            library = CONTESTANTS[compared["peer"]].adapter
            if library not in best or compared["median"] < best[library]["median"]:
                best[library] = compared
    libraries = {"plain": "the limit", "gymnasium": "Gymnasium", **PEERS}
    columns = [library for library in libraries if any(library in best for best in found.values())]
    lines = [
        "| × of each one's best mode | Shoal, steps/s | " + " | ".join(libraries[name] for name in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for (workload, num_envs, subject), best in found.items():
        cells = [f"{WORKLOADS[workload].title}, {num_envs}", f"{rate(rates[workload, num_envs, subject])} {subject}"]
        for name in columns:
            mode = best[name]["peer"].partition("-")[2] if name in best else ""
            cells.append(f"{ratio(best[name]['median'])}" + ("" if name == "plain" else f" {mode}") if mode else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def about(results: list[dict[str, Any]]) -> str:
    """Where and with what this was measured; one line for each that differs."""
    said = []
    for result in results:
        machine = result["machine"]
        text = (
            f"{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel'].split('-')[0]}, Python {machine['python']}, "
            f"Shoal {machine['shoal']}; medians of {result['rounds']} rounds of {result['seconds']:g} s."
        )
        said += [] if text in said else [text]
    versions: dict[str, str] = {}
    for result in results:
        for found in result["versions"].values():
            for name, version in found.items():
                versions.setdefault(name, version)  # of several, Shoal's own: it stands first
    versioned = [f"{name} {version}" for name, version in versions.items() if name not in ("python", "shoal")]
    return "\n".join(said) + "\n" + ", ".join(versioned) + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULT.json")
    parser.add_argument("--write", action="store_true", help="into benchmarks/README.md")
    options = parser.parse_args()
    text = tables([last_line(path) for path in options.results])
    if not options.write:
        print(text)
        return
    page = README.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{README} lacks the lines {BEGIN} and {END}")
    README.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
