"""Every row, every seed, as many at a time as there are CPUs."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.bench.learning.references import REFERENCES
from shoal.bench.learning.robust import interquartile_mean, interval, spread
from shoal.bench.learning.rows import HOURS, ROWS, Row
from shoal.bench.machine import machine
from shoal.bench.roster import PACKAGES, interpreter
from shoal.runs import preset

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Found", "run"]

HERE = Path(__file__).parent
SIDES = {"shoal": "Shoal", "sb3": "Stable-Baselines3"}
SETUP = "run benchmarks/peers/setup sb3 in Shoal's repository"


@dataclass
class Found:
    """Of a row on one side.

    Attributes:
        runs: what each seed's process said, in the order of the seeds.
        missing: options of the row's that this side has not; then nothing was run.
    """

    row: Row
    side: str
    runs: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

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
    console: Console | None = None,
) -> dict[str, Any]:
    """Trains each row with `seeds` seeds, prints a line for each, and tells all of it as JSON has it.

    Every seed is a process with a CPU of its own, and trains as many steps as the row has, whether or not the task is solved earlier. What
    counts is the last policy: the mean return of 100 fresh episodes with the most probable actions. Beside it stands what the last 100
    training episodes had in the mean.

    Args:
        rows: names of `ROWS`; by default those that take a quarter of an hour a seed at most.
        seeds: 0 to seeds - 1.
        sb3: also Stable-Baselines3, with the same settings, where it has them.
        steps: of each, in the place of the rows'; for trying out.
        jobs: how many at a time; by default as many as there are CPUs.
        console: where to print; stdout by default.

    Raises:
        ValueError: for a name that is no row, or a number that is not positive.
        RuntimeError: a seed failed; the message has the last line that it wrote.
    """
    from rich.console import Console

    console = console if console is not None else Console()
    for name in rows or ():
        if name not in ROWS:
            raise ValueError(f"there is no row {name!r}; choose from {', '.join(ROWS)}")
    chosen = [row for row in ROWS.values() if (row.hours <= HOURS if rows is None else row.name in rows)]
    cpus = sorted(os.sched_getaffinity(0))
    jobs = len(cpus) if jobs is None else jobs
    if min(seeds, jobs, *([steps] if steps is not None else [])) < 1:
        raise ValueError("seeds, steps and jobs must be at least 1")
    sides = ["shoal", "sb3"] if sb3 else ["shoal"]
    if sb3 and _python("sb3") is None:
        raise ValueError(f"Stable-Baselines3 is not installed: {SETUP}")
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch:
        pool = _Pool(cpus[:jobs] if jobs <= len(cpus) else cpus * -(-jobs // len(cpus)), jobs)
        with ThreadPoolExecutor(jobs) as threads:
            for row in chosen:
                for side in sides:
                    made = Found(row, side)
                    tasks = [_task(row, side, seed, steps, f"{scratch}/{len(found)}-{seed}") for seed in range(seeds)]
                    for told in threads.map(partial(pool.train, side), tasks):
                        made.missing = told.get("missing", [])
                        made.runs += [] if made.missing else [told]
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
                "seeds": made.runs,
                **(made.summary() if made.runs else {}),
            }
            for made in found
        ],
    }


def _python(side: str) -> str | None:
    """The interpreter that has what a side needs."""
    if side == "shoal" or find_spec("stable_baselines3") is not None:
        return sys.executable
    return interpreter("sb3")


def _task(row: Row, side: str, seed: int, steps: int | None, run_dir: str) -> dict[str, Any]:
    task: dict[str, Any] = {"seed": seed, "steps": steps or row.steps}
    if side == "sb3":
        return task | {"env": row.task, "settings": preset(row.preset, row.algorithm)}
    more = {"algorithm": row.algorithm, "preset": row.preset, "num_workers": row.num_workers}
    return task | more | {"env": row.env, "run_dir": run_dir}


class _Pool:
    """CPUs that are lent to processes, one each."""

    def __init__(self, cpus: Sequence[int], jobs: int) -> None:
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._lock = threading.Lock()
        for cpu in cpus[:jobs]:
            self._free.put(cpu)

    def train(self, side: str, task: dict[str, Any]) -> dict[str, Any]:
        cpu = self._free.get()
        try:
            return self._run(side, task, cpu)
        finally:
            self._free.put(cpu)

    def _run(self, side: str, task: dict[str, Any], cpu: int) -> dict[str, Any]:
        program = HERE / ("program.py" if side == "shoal" else "sb3_program.py")
        python = _python(side)
        assert python is not None
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
        if side == "shoal":
            environment["PYTHONPATH"] = str(PACKAGES)
        done = subprocess.run(
            [python, "-c", _CONFINED, str(cpu), str(program), json.dumps(task)],
            capture_output=True,
            text=True,
            env=environment,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
            raise RuntimeError(f"{SIDES[side]}, seed {task['seed']} of {task['env']}, failed: {last}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told


# Runs a program by path on one CPU.
_CONFINED = """
import os, runpy, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _line(found: Found) -> str:
    name = f"{found.row.name:<36} {SIDES[found.side]:<18}"
    if found.missing:
        return f"{name} has not {', '.join(found.missing)}"
    of = found.summary()
    low, high = of["interval"]
    solved = "" if of["solved"] is None else f", {of['solved']} of {len(found.runs)} at {found.row.target:g}"
    return (
        f"{name} {of['iqm']:9.1f} ({low:.1f} to {high:.1f}){solved}; {of['steps']:,} steps in {of['seconds']:.1f} s"
        f"{_references(found) if found.side == 'shoal' else ''}"
    )


def _references(found: Found) -> str:
    said = [
        r.said()
        for r in REFERENCES
        if (r.algorithm, r.task) == (found.row.algorithm, found.row.task.rpartition("/")[2])
    ]
    return "; " + "; ".join(said) if said else ""
