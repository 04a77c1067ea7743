"""Every row, every seed, as many at a time as there are CPUs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.bench.learning.pool import Pool, python_of
from shoal.bench.learning.references import REFERENCES
from shoal.bench.learning.robust import interquartile_mean, interval, spread
from shoal.bench.learning.rows import HOURS, ROWS, Row, row_named
from shoal.bench.machine import machine
from shoal.bench.roster import PACKAGES
from shoal.errors import Error
from shoal.learn.durable import replace_file
from shoal.runs import preset
from shoal.vector.extras import lacks

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Found", "run"]

SIDES = {"shoal": "Shoal", "sb3": "Stable-Baselines3"}
SETUP = "run benchmarks/peers/setup sb3 in Shoal's repository"


@dataclass
class Found:
    """Of a row on one side.

    Attributes:
        runs: what each seed's process said, in the order of the seeds.
        missing: options of the row's that this side has not; then nothing was run.
        failed: each seed whose process failed, and the last line that it wrote.
    """

    row: Row
    side: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, seed: int, told: dict[str, Any]) -> None:
        """What a seed's process said."""
        if "failed" in told:
            self.failed.append(f"seed {seed}: {told['failed']}")
        elif "missing" in told:
            self.missing = told["missing"]
        else:
            self.runs.append(told)

    def summary(self) -> dict[str, Any]:
        """The interquartile mean of the last policies' returns and its interval, and what else is compared."""
        returns = [run["return"] for run in self.runs]
        training = [run["training"][-1][1] for run in self.runs if run["training"]]
        mean, deviation = spread(returns)
        return {
            "iqm": interquartile_mean(returns),
            "interval": list(interval(returns)),
            "mean": mean,
            "deviation": deviation,
            "training": interquartile_mean(training) if training else None,
            "solved": None if self.row.target is None else sum(value >= self.row.target for value in returns),
            "steps": max(run["steps"] for run in self.runs),
            "seconds": sorted(run["seconds"] for run in self.runs)[len(self.runs) // 2],
            "curve_best": _best_of_mean_curve([run["evaluations"] for run in self.runs]),
        }


def _best_of_mean_curve(curves: list[list[list[float]]]) -> float | None:
    """The most of the mean over the seeds of what evaluations during training found: what tianshou publishes."""
    if not curves or not all(curves):
        return None
    length = min(map(len, curves))
    return max(sum(curve[k][1] for curve in curves) / len(curves) for k in range(length))


def run(
    rows: Sequence[str] | None = None,
    seeds: int = 10,
    *,
    sb3: bool = False,
    steps: int | None = None,
    jobs: int | None = None,
    runs: str | Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Trains each row with `seeds` seeds, prints a line for each, and tells all of it as JSON has it.

    Every seed is a process with a CPU of its own, and trains as many steps as the row has, whether or not the task is solved earlier. What
    counts is the last policy: the mean return of 100 fresh episodes with the most probable actions. Beside it stands what the last 100
    training episodes had in the mean. A seed that fails is told, and the others go on. Ctrl-C and SIGTERM end the seeds that run.

    Args:
        rows: names of `ROWS`, with the task or without where one row has such a name; by default those that take a quarter of an
            hour a seed at most, and whose task is found here.
        seeds: 0 to seeds - 1.
        sb3: also Stable-Baselines3, with the same settings, where it has them.
        steps: of each, in the place of the rows'; for trying out.
        jobs: how many at a time; by default as many as there are CPUs.
        runs: a directory that keeps the seeds' runs, so that rows may take several calls: what ended there is not trained again, whichever
            version of Shoal trained it, and what was begun goes on, of Shoal's side with at most ten minutes to make again. None: nothing is
            kept.
        console: where to print; stdout by default.

    Raises:
        ValueError: for a name that is no row, a row whose task is not here, or a number that is not positive.
        Error: packages that the rows' environments need are not installed; the message has the command that installs them.
    """
    from rich.console import Console

    console = console if console is not None else Console()
    named = None if rows is None else [row_named(name) for name in rows]
    for name in named or ():
        if name not in ROWS:
            raise ValueError(f"there is no row {name!r}; choose from {', '.join(ROWS)}")
        if not ROWS[name].is_here:
            raise ValueError(
                f"{name} is of an example: run it in the folder of {ROWS[name].module}.py, in examples/ of the source"
            )
    usual = [row for row in ROWS.values() if row.hours <= HOURS and row.is_here]
    chosen = usual if named is None else [row for row in ROWS.values() if row.name in named]
    cpus = sorted(os.sched_getaffinity(0))
    jobs = len(cpus) if jobs is None else jobs
    if min(seeds, jobs, *([steps] if steps is not None else [])) < 1:
        raise ValueError("seeds, steps and jobs must be at least 1")
    sides = ["shoal", "sb3"] if sb3 else ["shoal"]
    if sb3 and python_of("sb3") is None:
        raise ValueError(f"Stable-Baselines3 is not installed: {SETUP}")
    _require_packages(chosen)
    found: list[Found] = []
    lent = (cpus * -(-jobs // len(cpus)))[:jobs]
    with (
        _ended_by_sigterm(),
        _directory(runs) as directory,
        ThreadPoolExecutor(jobs) as threads,
        Pool(lent) as pool,  # left first: the threads wait for its processes
    ):
        for row in chosen:
            for side in sides:
                made = Found(row, side)
                train = partial(_train_once, pool, side)
                tasks = [_task(row, side, seed, steps, directory, runs is not None) for seed in range(seeds)]
                for seed, told in enumerate(threads.map(train, tasks)):
                    made.add(seed, told)
                console.print(_line(made), markup=False, highlight=False, soft_wrap=True)
                found.append(made)
    return {
        "machine": machine(),
        "seeds": seeds,
        "jobs": jobs,
        "rows": [
            {
                "row": made.row.name,
                "side": made.side,
                "missing": made.missing,
                "failed": made.failed,
                "seeds": made.runs,
                **(made.summary() if made.runs else {}),
            }
            for made in found
        ],
    }


def _require_packages(rows: Iterable[Row]) -> None:
    """Raises Error for packages that are not installed, before the first of many hours."""
    lacking = {row.env: package for row in rows if (package := lacks(row.env)) is not None}
    if lacking:
        packages = list(dict.fromkeys(lacking.values()))
        wanted = [word for package in packages for word in _for_pip(package)]
        command = shlex.join([sys.executable, "-m", "pip", "install", *wanted])
        raise Error(
            f"rows on {', '.join(lacking)} need {' and '.join(packages)}, not installed here:  {command}  (or name other rows)"
        )


def _for_pip(package: str) -> list[str]:
    """What pip is to install: of an extra of ours, in a source folder, the pinned requirements that are there."""
    pins = PACKAGES.parent / f"requirements-{package.partition('[')[2].rstrip(']')}.txt"
    return ["-r", str(pins)] if pins.is_file() else [package]


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Within, SIGTERM ends the program as Ctrl-C does, what was begun first; unless the program handles it itself."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # another one would disturb what ends
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _directory(kept: str | Path | None) -> Iterator[Path]:
    """Of the seeds' runs: `kept`, or one that is gone afterwards."""
    if kept is not None:
        directory = Path(kept).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        yield Path(scratch)


def _task(row: Row, side: str, seed: int, steps: int | None, directory: Path, kept: bool) -> dict[str, Any]:
    settings = preset(row.preset, row.algorithm)
    steps = steps or row.steps or settings["total_steps"]
    name = f"{row.algorithm}-{row.preset}-{row.task}".replace("/", "-")
    task = {
        "seed": seed,
        "steps": steps,
        "run_dir": str(directory / f"{name}-{steps}" / f"{side}-{seed}"),
        "kept": kept,
    }
    if side == "sb3":
        return task | {"env": row.task, "settings": settings}
    return task | {
        "algorithm": row.algorithm,
        "preset": row.preset,
        "num_workers": row.num_workers,
        "env": row.env,
    }


def _train_once(pool: Pool, side: str, task: dict[str, Any]) -> dict[str, Any]:
    """What the seed's process said, now or in an earlier call."""
    said = Path(task["run_dir"] + ".json")
    if said.is_file():
        return _said_earlier(said)
    told = pool.train(side, task)
    if "return" in told:
        said.parent.mkdir(exist_ok=True)
        replace_file(said, json.dumps(told).encode())
    return told


def _said_earlier(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text())
    except ValueError:
        told = None
    if not isinstance(told, dict) or "return" not in told:
        raise Error(f"{file} is damaged: remove it, and the seed goes on from its run, where that is kept beside it")
    return told


def _line(found: Found) -> str:
    name = f"{found.row.name:<36} {SIDES[found.side]:<18}"
    if found.missing:
        return f"{name} has not {', '.join(found.missing)}"
    failed = f"{len(found.failed)} of {len(found.failed) + len(found.runs)} seeds failed: {', '.join(found.failed[:1])}"
    if not found.runs:
        return f"{name} {failed}"
    of = found.summary()
    low, high = of["interval"]
    solved = "" if of["solved"] is None else f", {of['solved']} of {len(found.runs)} at {found.row.target:g}"
    return (
        f"{name} {of['iqm']:9.1f} ({low:.1f} to {high:.1f}){solved}; {of['steps']:,} steps in {of['seconds']:.1f} s"
        f"{_references(found) if found.side == 'shoal' else ''}{f'; {failed}' if found.failed else ''}"
    )


def _references(found: Found) -> str:
    said = [
        r.said()
        for r in REFERENCES
        if (r.algorithm, r.task) == (found.row.algorithm, found.row.task.rpartition("/")[2])
    ]
    return "; " + "; ".join(said) if said else ""
