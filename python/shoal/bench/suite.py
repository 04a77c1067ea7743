"""The suite: every workload, every contestant, in rounds."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.bench.process import PACKAGES, Contestant, ContestantFailed
from shoal.bench.result import BenchResult, Measurement
from shoal.bench.workloads import NATIVE_IDS, WORKLOADS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["CONTESTANTS", "peers_python", "run"]

CONTESTANTS = (
    "shoal-process",
    "shoal-serial",
    "shoal-native",
    "gymnasium-sync",
    "gymnasium-async",
    "sb3-dummy",
    "sb3-subproc",
    "plain-loops",
)


def run(
    workloads: Sequence[str] | None = None,
    num_envs: Sequence[int] = (64,),
    num_workers: int | None = None,
    contestants: Sequence[str] | None = None,
    rounds: int = 5,
    seconds: float = 1.0,
    console: Console | None = None,
) -> BenchResult:
    """Measures environment steps per second and prints a table of each workload as soon as it is complete.

    All contestants of a workload stand ready at the same time, each in a process of its own; in each round each of them
    steps for `seconds` while the others sleep, forwards in one round and backwards in the next, so that what else happens on
    the machine meets them alike. A window before the first round warms up and does not count.

    Args:
        workloads: some of `WORKLOADS`; all by default.
        num_envs: sizes to measure, each for itself.
        num_workers: worker processes of Shoal and of the plain loops; by default the CPUs that this process may use.
        contestants: some of `CONTESTANTS`; by default all that can run here.
        rounds: windows of each contestant that count.
        seconds: length of a window.
        console: where to print; stdout by default.

    Raises:
        ValueError: for a name that is not one of the choices, or a number that is not positive.
    """
    from rich.console import Console

    console = console if console is not None else Console()
    workloads = _chosen("workload", workloads, list(WORKLOADS))
    workers = len(os.sched_getaffinity(0)) if num_workers is None else num_workers
    if not num_envs or min(workers, rounds, *num_envs) < 1 or seconds <= 0:
        raise ValueError("num_envs, num_workers and rounds must be at least 1 and seconds more than 0")
    names, notes = _present(_chosen("contestant", contestants, list(CONTESTANTS)), asked=contestants is not None)

    from shoal.bench.report import Report

    report = Report(console)
    report.begin(notes)
    measurements: list[Measurement] = []
    versions: dict[str, dict[str, str]] = {}
    for workload in workloads:
        for size in num_envs:
            with report.progress(workload, size) as tick:
                found = _measure(workload, size, workers, names, rounds, seconds, versions, tick)
            measurements += found
            report.table(BenchResult(found, workers, rounds, seconds, {}, versions))
    return BenchResult(measurements, workers, rounds, seconds, _machine(), versions, notes)


def peers_python() -> Path | None:
    """The interpreter of the peers' virtual environment: $SHOAL_PEERS_PYTHON, or what benchmarks/peers/setup made."""
    for candidate in (os.environ.get("SHOAL_PEERS_PYTHON"), Path(PACKAGES).parent / "build/peers/bin/python"):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    return None


def _chosen(what: str, names: Sequence[str] | None, choices: list[str]) -> list[str]:
    if names is None:
        return choices
    for name in names:
        if name not in choices:
            raise ValueError(f"there is no {what} {name!r}; choose from {', '.join(choices)}")
    if not names:
        raise ValueError(f"no {what} to measure; choose from {', '.join(choices)}")
    return [name for name in choices if name in names]


def _present(names: list[str], asked: bool) -> tuple[list[str], list[str]]:
    """The contestants that can run here, and what to say of the others."""
    if peers_python() is not None or not any(name.startswith("sb3") for name in names):
        return names, []
    missing = "Stable-Baselines3 is not measured: run benchmarks/peers/setup in Shoal's repository, or name the Python that has it in SHOAL_PEERS_PYTHON."
    kept = [name for name in names if not name.startswith("sb3")]
    if asked and not kept:
        raise ValueError(missing)
    return kept, [missing]


def _measure(
    workload: str,
    num_envs: int,
    num_workers: int,
    names: Iterable[str],
    rounds: int,
    seconds: float,
    versions: dict[str, dict[str, str]],
    tick: Any,
) -> list[Measurement]:
    """All contestants at one workload."""
    rates: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    with ExitStack() as running:
        ready: dict[str, Contestant] = {}
        for name in names:
            if name == "shoal-native" and workload not in NATIVE_IDS:
                continue
            tick(f"starting {name}")
            interpreter = str(peers_python()) if name.startswith("sb3") else sys.executable
            rates[name] = []
            try:
                contestant = Contestant(interpreter, name, workload, num_envs, min(num_workers, num_envs))
                ready[name] = running.enter_context(contestant)
                versions[name] = contestant.versions
            except ContestantFailed as failure:
                errors[name] = str(failure)
        for round_ in range(-1, rounds):
            order = list(ready) if round_ % 2 == 0 else list(reversed(ready))
            for name in order:
                tick("warming up" if round_ < 0 else f"round {round_ + 1} of {rounds}: {name}")
                try:
                    rate = ready[name].measure(seconds if round_ >= 0 else seconds / 2)
                except ContestantFailed as failure:
                    errors[name] = str(failure)
                    rates[name] = []
                    ready.pop(name).close()
                    continue
                if round_ >= 0:
                    rates[name].append(rate)
    return [Measurement(workload, num_envs, name, found, errors.get(name)) for name, found in rates.items()]


def _machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "shoal": _version(),
    }


def _version() -> str:
    from shoal._version import __version__

    return __version__
