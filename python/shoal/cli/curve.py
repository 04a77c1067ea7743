"""Learning curves as images."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AXES = {"steps": "environment steps", "seconds": "seconds"}
FORMATS = (".png", ".svg", ".pdf")
# What `return` draws: scalar in progress.jsonl, what it is called.
_RETURNS = {"rollout/ep_rew_mean": "training", "eval/mean_reward": "evaluation"}


@dataclass
class Curve:
    """One scalar of one run."""

    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def read_curves(run_dir: Path, metric: str = "return") -> dict[str, Curve]:
    """What is drawn of a run for `metric` ("return", or a scalar's name), by what it is called; empty if never measured."""
    wanted = _RETURNS if metric == "return" else {metric: metric}
    curves: dict[str, Curve] = {}
    for record in _records(run_dir):
        for name, called in wanted.items():
            if name in record:
                curve = curves.setdefault(called, Curve())
                curve.steps.append(record["step"])
                curve.seconds.append(record["seconds"])
                curve.values.append(record[name])
    return curves


def scalar_names(run_dir: Path) -> set[str]:
    """The names that read_curves knows in this run."""
    return {"return"} | {name for record in _records(run_dir) for name in record} - {"step", "seconds"}


def _records(run_dir: Path) -> list[dict[str, Any]]:
    records = []
    with (run_dir / "progress.jsonl").open() as file:
        for line in file:
            if line.endswith("\n"):  # the last line of a run that goes on, or was killed, may be cut short
                records.append(json.loads(line))
    return records


def draw(
    runs: dict[str, dict[str, Curve]], out: Path, axis: str = "steps", title: str = "", label: str = "return"
) -> None:
    """Draws the curves of each run, by the run's name, in one image; the ending of `out` says of which format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (run, curves) in enumerate(runs.items()):
        for kind, (called, curve) in enumerate(curves.items()):
            colour = f"C{(kind if len(runs) == 1 else number) % 10}"
            name = called if len(runs) == 1 else f"{run} {called}" if len(curves) > 1 else run
            style: dict[str, Any] = (
                {"linestyle": "none", "marker": "o"} if called == "evaluation" else {"linewidth": 1.6}
            )
            axes.plot(getattr(curve, axis), curve.values, color=colour, label=name, **style)
    axes.set(xlabel=AXES[axis], ylabel=label, title=title)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False)
    figure.savefig(out)
