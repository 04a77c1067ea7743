#!/usr/bin/env python3
"""The tables of README.md and benchmarks/README.md, from what runs of `shoal bench --json` ended with.

    python benchmarks/tables.py RESULT.json…                prints the tables of these runs
    python benchmarks/tables.py --keep HOST RESULT.json…    keeps them as benchmarks/results/HOST.json, in the place of what is there
    python benchmarks/tables.py --write                     both files' tables anew, from all hosts that are kept

Of each host: each library's best mode at each workload and number of environments; then a table for each of these, in the order of the files. Ratios are of
one run each: where several files share a table, its first line has the rate of the one compared with in each of them, and of all else the last
file counts. Over all hosts: how far the ratios reach.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marked import write_between

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
BEGIN, END = "<!-- tables: made by benchmarks/tables.py -->", "<!-- end of tables -->"

# Of README.md: what one looks for first.
SHORT = [("cartpole", 8), ("cartpole", 64), ("image", 64), ("noop", 64), ("busy", 64), ("sleep-exp", 8), ("pong", 8)]
SHORT += [("native-cartpole", size) for size in (8, 64, 256, 1024)]

sys.path.insert(0, str(ROOT / "python"))

Key = tuple[str, int, int]
"""Workload, environments, busy processes beside them."""


def key_of(found: dict[str, Any], result: dict[str, Any]) -> Key:
    return found["workload"], found["num_envs"], result.get("beside", 0)


def title_of(key: Key) -> str:
    from shoal.bench.workloads import WORKLOADS

    workload, num_envs, beside = key
    return f"{WORKLOADS[workload].title}, {num_envs}" + (f", beside {beside} busy processes" if beside else "")


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
    """Of one host."""
    subjects: dict[Key, dict[str, list[str]]] = {}
    rows: dict[Key, dict[str, str]] = {}
    for result in results:
        ratios = {(key_of(r, result), r["peer"]): r for r in result["ratios"]}
        compared_with = {key_of(r, result): r["subject"] for r in result["ratios"]}
        for found in result["rates"]:
            key, name = key_of(found, result), found["contestant"]
            rows.setdefault(key, {})
            if name == compared_with.get(key):
                subjects.setdefault(key, {}).setdefault(name, []).append(spread(found, rate))
            else:
                rows[key][name] = row(found, ratios.get((key, name)))
    parts = [about(results), summary(results)]
    for key, lines in rows.items():
        parts.append(f"**{title_of(key)} environments**" if not key[2] else f"**{title_of(key)}**")
        heading = ["| | steps/s (from – to) | × (from – to) | best with |", "|---|---|---|---|"]
        first = [f"| **{name}** | {'; '.join(of)} | | |" for name, of in subjects.get(key, {}).items()]
        parts.append("\n".join([*heading, *first, *lines.values()]))
    return "\n\n".join(parts)


def libraries() -> dict[str, str]:
    from shoal.bench.roster import PEERS

    return {"plain": "plain loops", "gymnasium": "Gymnasium", **PEERS}


def best_modes(results: list[dict[str, Any]]) -> dict[Key, dict[str, dict[str, Any]]]:
    """For each table: of each library the comparison with its best mode."""
    from shoal.bench.roster import CONTESTANTS

    found: dict[Key, dict[str, dict[str, Any]]] = {}
    for result in results:
        for compared in result["ratios"]:
            best = found.setdefault(key_of(compared, result), {})
            library = CONTESTANTS[compared["peer"]].adapter
            if library not in best or compared["median"] < best[library]["median"]:
                best[library] = compared
    return found


def rates_of(results: list[dict[str, Any]]) -> dict[tuple[Key, str], float | None]:
    return {
        (key_of(found, result), found["contestant"]): found.get("median")
        for result in results
        for found in result["rates"]
    }


def subject_of(best: dict[str, dict[str, Any]]) -> str:
    return next(iter(best.values()))["subject"]


def summary(results: list[dict[str, Any]]) -> str:
    """How many times as fast the subject was as each library in its best mode."""
    found, rates = best_modes(results), rates_of(results)
    columns = [library for library in libraries() if any(library in best for best in found.values())]
    lines = [
        "| × of each one's best mode | Shoal, steps/s | " + " | ".join(libraries()[name] for name in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for key, best in found.items():
        subject = subject_of(best)
        cells = [title_of(key), f"{rate(rates[key, subject])} {subject}"]
        for name in columns:
            mode = best[name]["peer"].partition("-")[2] if name in best else ""
            cells.append(f"{ratio(best[name]['median'])}" + ("" if name == "plain" else f" {mode}") if mode else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def over_hosts(hosts: dict[str, list[dict[str, Any]]], keys: list[Key] | None = None) -> str:
    """The rates on each host, and how far the ratios reach from host to host."""
    of_host = {host: best_modes(results) for host, results in hosts.items()}
    if keys is None:
        keys = list(dict.fromkeys(key for found in of_host.values() for key in found))
    keys = [key for key in keys if any(key in found for found in of_host.values())]
    columns = [
        name for name in libraries() if any(name in found.get(key, {}) for found in of_host.values() for key in keys)
    ]
    lines = [
        "| × of each one's best mode | Shoal, steps/s | " + " | ".join(libraries()[name] for name in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for key in keys:
        there = {host: found[key] for host, found in of_host.items() if key in found}
        rates = [rate(rates_of(hosts[host])[key, subject_of(best)]) for host, best in there.items()]
        cells = [title_of(key), " · ".join(rates) + (f" ({', '.join(there)})" if len(there) < len(hosts) else "")]
        for name in columns:
            ratios = [best[name]["median"] for best in there.values() if name in best]
            cells.append(reach(ratios, len(there)) if ratios else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def reach(ratios: list[float], hosts: int) -> str:
    text = ratio(min(ratios)) if len(ratios) == 1 else f"{ratio(min(ratios))} – {ratio(max(ratios))}"
    return f"{text} ({len(ratios)} of {hosts})" if len(ratios) < hosts else text


def machine_of(results: list[dict[str, Any]]) -> str:
    """The machine of these runs; what its CPUs do side by side is measured in each of them."""
    machine = results[0]["machine"]
    worths = sorted(result["machine"]["worth"] for result in results if "worth" in result["machine"])
    worth = ""
    if worths:
        spread = f" ({worths[0]:.1f} – {worths[-1]:.1f})" if worths[-1] - worths[0] >= 0.1 else ""
        worth = f" that side by side do the work of {statistics.median(worths):.1f}{spread}"
    return f"{machine['cpu']}, {machine['cpus']} CPUs{worth}"


def about(results: list[dict[str, Any]]) -> str:
    """Where and with what this was measured; one line for each that differs."""
    said = []
    for result in results:
        machine = result["machine"]
        text = (
            f"{machine_of(results)}, Linux {machine['kernel'].split('-')[0]}, Python {machine['python']}, "
            f"Shoal {machine['shoal']}"
        )
        text += f"; medians of {result['rounds']} rounds of {result['seconds']:g} s." if "rounds" in result else "."
        said += [] if text in said else [text]
    versions: dict[str, str] = {}
    for result in results:
        for found in result["versions"].values():
            for name, version in found.items():
                versions.setdefault(name, version)  # of several, Shoal's own: it stands first
    versioned = [f"{name} {version}" for name, version in versions.items() if name not in ("python", "shoal")]
    return "\n".join(said) + "\n" + ", ".join(versioned) + "."


def kept() -> dict[str, dict[str, Any]]:
    """The hosts, by name: of each its runs, a note, and whether of each run there are medians only."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def hosts_said(hosts: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, host in hosts.items():
        note = f" {host['note']}" if "note" in host else ""
        lines.append(f"- **{name}**: {machine_of(host['runs'])}.{note}")
    return "\n".join(lines)


def pages(hosts: dict[str, dict[str, Any]]) -> dict[Path, str]:
    """What stands between the marks of each file."""
    runs = {name: host["runs"] for name, host in hosts.items()}
    whole = [hosts_said(hosts), over_hosts(runs)]
    for name, results in runs.items():
        medians_only = hosts[name].get("medians_only")
        whole += [f"#### {name}", f"{about(results)}\n\n{summary(results)}" if medians_only else tables(results)]
    short = over_hosts(runs, [(workload, size, 0) for workload, size in SHORT])
    return {
        ROOT / "benchmarks/README.md": "\n\n".join(whole),
        ROOT / "README.md": f"{hosts_said(hosts)}\n\n{short}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="*", metavar="RESULT.json")
    parser.add_argument("--keep", metavar="HOST", help="under this name, as in amd-epyc-halves")
    parser.add_argument("--note", help="what else is to be said of the host, for --keep")
    parser.add_argument("--write", action="store_true", help="into README.md and benchmarks/README.md")
    options = parser.parse_args()
    if not options.results and not options.write:
        parser.error("name the files of results, or give --write")
    runs = [last_line(path) for path in options.results]
    if options.keep and runs:
        RESULTS.mkdir(exist_ok=True)
        note = {"note": options.note} if options.note else {}
        (RESULTS / f"{options.keep}.json").write_text(json.dumps({**note, "runs": runs}, indent=1) + "\n")
    elif runs:
        print(tables(runs))
    if options.write:
        hosts = kept()
        if not hosts:
            raise SystemExit(f"{RESULTS} has no results: --keep some first")
        for path, text in pages(hosts).items():
            write_between(path, BEGIN, END, text)


if __name__ == "__main__":
    main()
