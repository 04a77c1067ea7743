#!/usr/bin/env python3
"""The table of what presets learn, in benchmarks/README.md and README.md, from what runs of `shoal bench learning --json` ended with.

    ./shoal bench learning --json >RESULT.json
    python benchmarks/learning.py RESULT.json…              prints the table of these runs
    python benchmarks/learning.py --keep RESULT.json…       keeps their rows in benchmarks/results/learning, in the place of the same rows there
    python benchmarks/learning.py --write                   both files' tables and docs/images/learning.png anew, from all that is kept

Every row of `shoal.bench.learning` stands in the table; one that nobody ran says how long it would take, or what one seed of `shoal train` had.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marked import write_between

if TYPE_CHECKING:
    from shoal.bench.learning import Row

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks/results/learning/rows.json"
PICTURE = ROOT / "docs/images/learning.png"
BEGIN, END = "<!-- learning: made by benchmarks/learning.py -->", "<!-- end of learning -->"
ONE_SEED = {
    "ppo/Pong-v5:ALE/Pong-v5": "17.1 after 10 M",
    "ppo/atari:ALE/Pong-v5": "15.1 after 10 M",
    "ppo/cleanrl_atari:ALE/Breakout-v5": "331 after 10 M",
}
"""What docs/guides/atari.md tells of: the mean return of one seed's policy over 100 games."""
# Of README.md: what one looks for first.
SHORT = [
    "ppo/CartPole-v1",
    "ppo/LunarLander-v3",
    "ppo/HalfCheetah-v5",
    "ppo/Hopper-v5",
    "ppo/Walker2d-v5",
    "dqn/CartPole-v1",
    "dqn/LunarLander-v3",
    "sac/Pendulum-v1",
    "recurrent_ppo/CartPoleNoVel-v1",
]

sys.path.insert(0, str(ROOT / "python"))

Key = tuple[str, str]
"""Row and side."""


def rows_of(path: Path) -> dict[Key, dict[str, Any]]:
    """Of the closing line of a run; standard output may hold more before it."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    try:
        result = json.loads(lines[-1]) if lines else None
    except json.JSONDecodeError:
        result = None
    if not isinstance(result, dict) or not {"rows", "machine", "seeds", "jobs"} <= set(result):
        raise SystemExit(f"{path} does not end with the JSON line of `shoal bench learning --json`")
    about = {"cpu": result["machine"]["cpu"], "shoal": result["machine"]["shoal"], "jobs": result["jobs"]}
    if failed := [row["row"] for row in result["rows"] if row.get("failed")]:
        print(f"{path}: left out, since seeds failed: {', '.join(failed)}", file=sys.stderr)
    return {(row["row"], row["side"]): row | about for row in result["rows"] if not row.get("failed")}


def kept() -> dict[Key, dict[str, Any]]:
    if not KEPT.exists():
        return {}
    return {(row["row"], row["side"]): row for row in json.loads(KEPT.read_text())}


def keep(found: dict[Key, dict[str, Any]]) -> None:
    from shoal.bench.learning import ROWS

    rows = {key: row for key, row in (kept() | found).items() if key[0] in ROWS}
    order = list(ROWS)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(rows[key]) for key in sorted(rows, key=lambda key: (order.index(key[0]), key[1] != "shoal"))]
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def steps_said(steps: int) -> str:
    return f"{steps / 1e6:.3g} M" if steps >= 999_500 else f"{steps / 1e3:.3g} k"


def maker(cpu: str) -> str:
    return next((name for name in ("AMD", "Intel") if cpu.startswith(name)), cpu)


def reached(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{number(row['iqm'])} ({number(low)} – {number(high)})"


def beside(row: Row, theirs: dict[str, Any] | None) -> str:
    """What Stable-Baselines3 reached, or what it has not."""
    from shoal.bench.learning.sb3_program import missing
    from shoal.runs import preset

    if theirs is not None and theirs["seeds"]:
        return f"{reached(theirs)} in {duration(theirs['seconds'])}"
    of_wrapper = "sign_reward="  # AtariWrapper has it
    lacking = [of for of in missing(preset(row.preset, row.algorithm)) if not of.startswith(of_wrapper)]
    return f"has not {', '.join(lacking)}" if lacking else "not run"


def most_of_mean_curve(row: dict[str, Any]) -> str:
    """Of the evaluations during training, as tianshou publishes it: the most of their mean over the seeds. The interval is of seeds drawn anew."""
    import numpy as np

    from shoal.bench.learning.robust import RESAMPLES

    curves = [[value for _, value in seed["evaluations"]] for seed in row["seeds"]]
    table = np.array([curve[: min(map(len, curves))] for curve in curves])
    drawn = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
    low, high = np.percentile(table[drawn].mean(axis=1).max(axis=1), [2.5, 97.5])
    return f"{number(row['curve_best'])} ({number(low)} – {number(high)})"


def published(row: Row, own: dict[str, Any] | None) -> list[str]:
    """What others publish; beside tianshou's figure of as many steps, the same statistic of our seeds."""
    from shoal.bench.learning import REFERENCES

    found = []
    for reference in REFERENCES:
        if (reference.algorithm, reference.task) != (row.algorithm, row.task.rpartition("/")[2]):
            continue
        said = reference.said()
        if reference.source == "tianshou" and own is not None and own["curve_best"] is not None:
            if 0.9 < own["steps"] / reference.steps < 1.1:
                said += f", of ours {most_of_mean_curve(own)}"
        found.append(said)
    return found


def cells(name: str, found: dict[Key, dict[str, Any]], figures: int | None = None) -> list[str]:
    """Of a row of the table; `figures`: how many of what others publish, all by default."""
    from shoal.bench.learning import ROWS

    row = ROWS[name]
    own, theirs = found.get((name, "shoal")), found.get((name, "sb3"))
    title = [row.task, f"{row.algorithm}, `{row.preset}`"]
    others = [beside(row, theirs), "; ".join(published(row, own)[:figures])]
    if own is None:
        told = f"not run here: about {row.hours:g} h a seed"
        if name in ONE_SEED:
            told = f"{ONE_SEED[name]}, one seed of `shoal train` ([guide](../docs/guides/atari.md#train))"
        return [*title, told, "", "", "", *others]
    seeds = len(own["seeds"])
    solved = f"{seeds} seeds" if own["solved"] is None else f"{own['solved']} of {seeds} ≥ {row.target:g}"
    training = "" if own["training"] is None else number(own["training"])
    time = f"{steps_said(own['steps'])} in {duration(own['seconds'])}, {maker(own['cpu'])}"
    return [*title, reached(own), solved, training, time, *others]


def table(names: list[str], found: dict[Key, dict[str, Any]], figures: int | None = None) -> str:
    heading = [
        "task",
        "algorithm, preset",
        "last policy",
        "seeds, solved",
        "training",
        "steps, time of a seed",
        "Stable-Baselines3, same settings",
        "published",
    ]
    lines = [heading, ["---"] * len(heading), *(cells(name, found, figures) for name in names)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def pages(found: dict[Key, dict[str, Any]]) -> dict[Path, str]:
    from shoal.bench.learning import ROWS

    machines = "; ".join(dict.fromkeys(f"{row['cpu']}, {row['jobs']} seeds at a time" for row in found.values()))
    return {
        ROOT / "benchmarks/README.md": f"{machines}.\n\n{table(list(ROWS), found)}",
        ROOT / "README.md": table([name for name in SHORT if name in ROWS], found, figures=2),
    }


def curves(row: dict[str, Any], points: int = 100) -> tuple[Any, Any]:
    """Returns of the training episodes, where all seeds have one: steps [points], returns [seeds, points] (linear between what was logged)."""
    import numpy as np

    logged = [np.array(seed["training"], float) for seed in row["seeds"]]
    steps = np.linspace(max(one[0, 0] for one in logged), min(one[-1, 0] for one in logged), points)
    return steps, np.array([np.interp(steps, one[:, 0], one[:, 1]) for one in logged])


def draw(names: list[str], found: dict[Key, dict[str, Any]], out: Path) -> None:
    """A panel for each row that was run: the interquartile mean of its seeds, and the range of the seeds within it."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from shoal.bench.learning import ROWS, interquartile_mean

    names = [name for name in names if (name, "shoal") in found]
    figure = Figure(figsize=(12, 2.7 * -(-len(names) // 4)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(-(-len(names) // 4), 4, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        row = ROWS[name]
        steps, returns = curves(found[name, "shoal"])
        low, high = np.percentile(returns, [25, 75], axis=0)
        axes.fill_between(steps / 1000, low, high, alpha=0.25, linewidth=0)
        axes.plot(steps / 1000, [interquartile_mean(column) for column in returns.T], linewidth=1.6)
        if row.target is not None:
            axes.axhline(row.target, color="black", linewidth=0.8, linestyle=":")
        axes.set_title(f"{row.task.rpartition('/')[2]}, {row.algorithm}", fontsize=10)
        axes.set_xlabel("thousand steps", fontsize=9)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    figure.savefig(out, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="*", metavar="RESULT.json")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/results/learning")
    parser.add_argument("--write", action="store_true", help="into README.md and benchmarks/README.md")
    options = parser.parse_args()
    if not options.results and not options.write:
        parser.error("name the files of results, or give --write")
    found: dict[Key, dict[str, Any]] = {}
    for path in options.results:
        found |= rows_of(path)
    if options.keep:
        keep(found)
    elif found:
        print(table(list(dict.fromkeys(name for name, _ in found)), found))
    if options.write:
        for path, text in pages(kept()).items():
            write_between(path, BEGIN, END, text)
        draw(SHORT, kept(), PICTURE)


if __name__ == "__main__":
    main()
