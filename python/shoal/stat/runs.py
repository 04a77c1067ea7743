"""Training runs, of those that go on and those that have ended: from their directories (src/shoal/learn/run/run_directory.h)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.stat.processes import descriptors

__all__ = ["is_run", "of_processes", "run", "runs_in"]

_TAIL = 65536


def of_processes(pids: Iterable[int]) -> dict[str, int]:
    """The directories that these processes train in, and who does: whoever has the lock open."""
    found: dict[str, int] = {}
    for pid in pids:
        for _, what in descriptors(pid):
            folder, _, name = what.rpartition("/")
            if name == "lock" and is_run(Path(folder)):
                found[folder] = pid
    return found


def runs_in(folder: Path, most: int) -> list[Path]:
    """Those in a folder, the youngest first."""
    found = [path for path in folder.glob("*") if is_run(path)]
    return sorted(found, key=lambda path: (path / "config.json").stat().st_mtime, reverse=True)[:most]


def is_run(folder: Path) -> bool:
    return _read(folder / "config.json").get("format") == "shoal.run"


def run(folder: Path, pid: int | None) -> dict[str, Any]:
    """Of what its directory says. `pid`: who trains in it; None: nobody."""
    config, result = _read(folder / "config.json"), _read(folder / "result.json")
    told = config.get("config")
    options: dict[str, Any] = told if isinstance(told, dict) else {}
    records = _last_records(folder / "progress.jsonl")
    steps = max((record.get("step", 0) for record in records), default=0)
    over = bool(result) and result.get("steps", 0) >= steps
    merged: dict[str, Any] = {}
    for record in records:
        merged |= record
    if over and pid is None:
        steps = result["steps"]
    return {
        "run_dir": str(folder),
        "pid": pid,
        "state": "training" if pid is not None else "ended" if over else "killed",
        "ending": result.get("ending") if over and pid is None else None,
        "environment": config.get("env"),
        "algorithm": config.get("algorithm"),
        "envs": options.get("num_envs"),
        "steps": steps,
        "total_steps": options.get("total_steps"),
        "seconds": merged.get("seconds"),
        "steps_per_second": merged.get("time/fps"),
        "mean_return": result.get("mean_return") if over and pid is None else merged.get("rollout/ep_rew_mean"),
        "record_seconds": _age(folder),
    }


def _age(folder: Path) -> float | None:
    """Since something was written there."""
    times = []
    for name in ("progress.jsonl", "config.json", "result.json"):
        try:
            times.append(os.stat(folder / name).st_mtime)
        except OSError:
            continue
    return max(0.0, time.time() - max(times)) if times else None


def _read(file: Path) -> dict[str, Any]:
    """Nothing for what is not there, or no JSON."""
    try:
        values = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _last_records(file: Path) -> list[dict[str, Any]]:
    """Whole lines at the end of a progress.jsonl."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - _TAIL))
            lines = opened.read().split(b"\n")[:-1]
    except OSError:
        return []
    records = []
    for line in lines[-50:]:
        try:
            record = json.loads(line)
        except ValueError:  # the first, cut off
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
