"""`shoal stat`: what runs, or ran, on this machine for this user."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import typer

from shoal.cli import completion
from shoal.cli.console import closing_json, fail, say, wrong_use
from shoal.cli.runs import read_config, why_no_folder
from shoal.cli.stat_tables import tables

_CLEAR = "\x1b[H\x1b[2J"
_LONGEST = 86_400
"""Seconds of --watch."""


def register(app: typer.Typer) -> None:
    app.command("stat")(stat)


def stat(
    target: str = typer.Argument(
        None,
        help="Only this: a process id or the folder of a run, with all that they have started, or the address of a service "
        "(ModelService.address).",
        autocompletion=completion.runs,
    ),
    json_output: bool = typer.Option(False, "--json", help="End with one line of JSON; with --watch, one each time."),
    watch: float = typer.Option(None, "--watch", help="Show it anew every so many seconds, until Ctrl-C.", min=0.0),
    count: int = typer.Option(None, "--count", help="With --watch: only so many times.", min=1),
    workers: bool = typer.Option(
        False, "--workers", help="A line for every worker, not only for those that need a look."
    ),
    runs: Path = typer.Option(
        Path("runs"), "--runs", metavar="FOLDER", help="Where runs are looked for that have ended."
    ),
) -> None:
    """Show what Shoal does on this machine: environments, pools, collectors, model services, training runs.

    Live ones of all programs of this user, and runs that have ended or were killed. Exits with 1 when there is none.
    """
    if count is not None and watch is None:
        wrong_use("--count is for --watch")
    if watch is not None and not watch <= _LONGEST:
        wrong_use(f"--watch takes at most {_LONGEST:,} seconds, not {watch:g}")
    if target == "":
        wrong_use(
            "an empty path is no run: name a process id, the folder of a run or a service, or nothing for everything"
        )
    before: dict[str, Any] | None = None
    while True:
        seen = _of(target, runs)
        empty = not any(isinstance(value, list) and value for value in seen.values())
        if json_output:
            closing_json(seen)
        elif not empty or watch is not None:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            if watch is not None and width is not None:
                sys.stdout.write(_CLEAR)
            say(tables(seen, before, workers, width))
        if watch is None:
            if empty:
                fail(_absence(target, runs))
            return
        if count is not None:
            count -= 1
            if count == 0:
                return
        before = seen
        time.sleep(watch)


def _of(target: str | None, runs: Path) -> dict[str, Any]:
    from shoal.stat import VERSION, snapshot
    from shoal.stat.machine import service

    if target is None:
        return snapshot(runs)
    if target.isdecimal():
        return _of_family(snapshot(), int(target))
    if _is_folder(target):
        seen = snapshot(Path(target).resolve())
        runs_there = _only(seen["runs"], lambda run: run["run_dir"] == str(Path(target).resolve()))
        pid = next((run["pid"] for run in runs_there), None)
        return {**_of_family(seen, pid), "runs": runs_there}
    found = service(target)
    return {"version": VERSION, "time": time.time(), "services": [] if found is None else [found]}


def _of_family(seen: dict[str, Any], pid: int | None) -> dict[str, Any]:
    """Of this process, which may have been killed, and of those that work for it; None: nothing."""
    from shoal.stat.family import family

    those = set() if pid is None else {pid} | family(pid)
    return {name: _only(value, lambda each: each["pid"] in those) for name, value in seen.items()}


def _is_folder(target: str) -> bool:
    return bool(target) and os.path.isdir(target)


def _only(value: Any, wanted: Any) -> Any:
    return [each for each in value if wanted(each)] if isinstance(value, list) else value


def _absence(target: str | None, runs: Path) -> str:
    """Why nothing is shown, in one line."""
    from shoal.serve.observing import ADDRESS, absence
    from shoal.stat.processes import in_a_container

    if target is None:
        return f"nothing of Shoal's runs on this machine for this user, and there are no runs in {str(runs)!r} (--runs)"
    if why := in_a_container(target):
        return why
    if target.isdecimal():
        return f"process {target} has nothing of Shoal's, or there is no such process of this user"
    if _is_folder(target):
        read_config(Path(target))  # which says what it lacks
        return f"{target!r} is a run that was not there a moment ago"
    if target.startswith(ADDRESS):
        return absence(target)
    why = why_no_folder(Path(target))
    if "/" in target or "did you mean" in why or os.path.exists(target):
        return why
    return f"{why}, and it is no address of a model service, which is like {ADDRESS}PID-NUMBER"
