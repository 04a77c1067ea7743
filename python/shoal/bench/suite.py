"""The suite: every workload, every contestant, in rounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.bench.beside import Beside
from shoal.bench.machine import machine
from shoal.bench.process import ContestantFailed, Process
from shoal.bench.result import BenchResult, Measurement
from shoal.bench.roster import CONTESTANTS, PEERS, Contestant, interpreter, needs
from shoal.bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run", "selected"]

SETUP = "run benchmarks/peers/setup in Shoal's repository, or name the folder that it made in SHOAL_PEERS"


def run(
    workloads: Sequence[str] | None = None,
    num_envs: Sequence[int] = (64,),
    num_workers: int | None = None,
    contestants: Sequence[str] | None = None,
    rounds: int = 5,
    seconds: float = 1.0,
    beside: int = 0,
    console: Console | None = None,
) -> BenchResult:
    """Measures environment steps per second and prints a table of each workload as soon as it is complete.

    All contestants of a workload stand ready at the same time, each in a process of its own; in each round each of them
    steps for `seconds` while all processes of the others are stopped, forwards in one round and backwards in the next, so that what else happens on
    the machine meets them alike. A window before the first round warms up and does not count.

    Args:
        workloads: some of `WORKLOADS`; all by default.
        num_envs: sizes to measure, each for itself.
        num_workers: workers, for contestants that share them among environments; by default the CPUs that this process
            may use, or for workloads that wait instead of computing one for each environment.
        contestants: some of `CONTESTANTS`, or of the names before their dashes, which mean all of that name; by default
            all that can run here.
        rounds: windows of each contestant that count.
        seconds: length of a window.
        beside: processes that compute while a contestant steps, as other programs on the machine do.
        console: where to print; stdout by default.

    Raises:
        ValueError: for a name that is not one of the choices, or a number that is not positive.
    """
    from rich.console import Console

    console = console if console is not None else Console()
    workloads = _chosen("workload", workloads, list(WORKLOADS))
    cpus = len(os.sched_getaffinity(0))
    if not num_envs or min(cpus if num_workers is None else num_workers, rounds, *num_envs) < 1 or seconds <= 0:
        raise ValueError("num_envs, num_workers and rounds must be at least 1 and seconds more than 0")
    if beside < 0:
        raise ValueError(f"beside must be 0 or more, got {beside}")
    everyone = selected(contestants)
    notes = _missing(everyone, workloads, asked=contestants is not None)

    from shoal.bench.report import Report

    report = Report(console)
    about = machine()
    notes.append(f"{about['cpu']}: {about['side_by_side']}.")
    report.begin(notes)
    result = BenchResult([], num_workers or cpus, rounds, seconds, about, {}, notes, beside)
    with Beside(beside) as others:
        for workload in workloads:
            for size in num_envs:
                workers = num_workers or (size if WORKLOADS[workload].waits else cpus)
                entrants = [c for c in everyone if c.steps(workload) and interpreter(needs(c, workload)) is not None]
                with report.progress(workload, size) as tick:
                    found = _measure(
                        workload, size, min(workers, size), entrants, rounds, seconds, others, result.versions, tick
                    )
                result.measurements.extend(found)
                if found:
                    report.table(replace(result, measurements=found, num_workers=workers))
    return result


def selected(names: Sequence[str] | None) -> list[Contestant]:
    """The contestants of these names, or of the adapters of these names; all of them for None.

    Raises:
        ValueError: for a name that is neither.
    """
    adapters = [contestant.adapter for contestant in CONTESTANTS.values()]
    for name in names or ():
        if name not in CONTESTANTS and name not in adapters:
            raise ValueError(f"there is no contestant {name!r}; choose from {', '.join(CONTESTANTS)}")
    if names is not None and not names:
        raise ValueError(f"no contestant to measure; choose from {', '.join(CONTESTANTS)}")
    return [c for c in CONTESTANTS.values() if names is None or c.name in names or c.adapter in names]


def _chosen(what: str, names: Sequence[str] | None, choices: list[str]) -> list[str]:
    if names is None:
        return choices
    for name in names:
        if name not in choices:
            raise ValueError(f"there is no {what} {name!r}; choose from {', '.join(choices)}")
    if not names:
        raise ValueError(f"no {what} to measure; choose from {', '.join(choices)}")
    return [name for name in choices if name in names]


def _missing(entrants: list[Contestant], workloads: list[str], asked: bool) -> list[str]:
    """What to say of what is not installed: libraries, and what a workload's environments need.

    Raises:
        ValueError: when what was asked for comes to nothing without it.
    """
    pairs = [(c, workload) for workload in workloads for c in entrants if c.steps(workload)]
    missing = {peer: PEERS[peer] for peer in (needs(*pair) for pair in pairs) if peer and interpreter(peer) is None}
    if not missing:
        return []
    names = list(missing.values())
    said = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    note = f"{said} {'are' if len(names) > 1 else 'is'} not measured: {SETUP}."
    if asked and all(needs(*pair) in missing for pair in pairs):
        raise ValueError(note)
    return [note]


def _measure(
    workload: str,
    num_envs: int,
    num_workers: int,
    entrants: Iterable[Contestant],
    rounds: int,
    seconds: float,
    others: Beside,
    versions: dict[str, dict[str, str]],
    tick: Any,
) -> list[Measurement]:
    """All contestants at one workload."""
    found: dict[str, Measurement] = {}
    with ExitStack() as running:
        ready: dict[str, Process] = {}
        for contestant in entrants:
            name = contestant.name
            tick(f"starting {name}")
            try:
                process = running.enter_context(Process(contestant, workload, num_envs, num_workers))
            except ContestantFailed as failure:
                found[name] = Measurement(workload, num_envs, name, error=str(failure), num_workers=num_workers)
                continue
            ready[name] = process
            versions[name] = process.versions
            found[name] = Measurement(workload, num_envs, name, settings=process.settings, num_workers=num_workers)
        for round_ in range(-1, rounds):
            order = list(ready) if round_ % 2 == 0 else list(reversed(ready))
            for name in order:
                tick("warming up" if round_ < 0 else f"round {round_ + 1} of {rounds}: {name}")
                try:
                    with others.running():
                        rate = ready[name].measure(seconds if round_ >= 0 else seconds / 2)
                except ContestantFailed as failure:
                    found[name] = Measurement(workload, num_envs, name, error=str(failure), num_workers=num_workers)
                    ready.pop(name).close()
                    continue
                if round_ >= 0:
                    found[name].rates.append(rate)
    return list(found.values())
