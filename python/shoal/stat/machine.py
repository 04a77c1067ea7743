"""All that is seen at one moment, as plain values: the JSON of `shoal stat --json`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.serve.observing import observe, services
from shoal.stat import runs
from shoal.stat.boards import Found, boards, collector, environments, listening, pool, remote
from shoal.stat.family import family
from shoal.stat.processes import File, command_of, file_of, memory_of, mine

__all__ = ["VERSION", "snapshot"]

VERSION = 1
"""Of the schema: it grows when a name goes or means something else; new names are no new version."""

_RANKS = {"killed": 0, "failed": 0, "damaged": 0, "ended": 2}
"""What needs a look comes first."""

_KINDS: dict[str, tuple[str, Callable[[Found], dict[str, Any]]]] = {
    "envs": ("environments", environments),
    "pool": ("pools", pool),
    "collector": ("collectors", collector),
    "remote": ("remote_collectors", remote),
    "listening": ("listening_services", listening),
}


def snapshot(folder: Path | None = None, most: int = 10) -> dict[str, Any]:
    """What runs for this user: `environments`, `pools`, `collectors`, `remote_collectors`, `listening_services`, `services` and
    `runs`, each a list of dicts, those that need a look first; `version` of this schema, and the `time` (seconds since 1970).

    Times are seconds, sizes bytes; what only grows is a total, with its mean rate since the beginning beside it. Everything
    has the `pid` of its maker and a `state`, which is "killed" for what its maker has left behind. A run that has "failed" has the
    first line of its `error`; one is "damaged" whose result.json cannot be read.

    Args:
        folder: runs that have ended are looked for there, or that of one run; None: only those that go on.
        most: so many of them, the youngest.
    """
    pids = mine()
    seen: dict[str, Any] = {"version": VERSION, "time": time.time()}
    seen |= {name: [] for name, _ in _KINDS.values()}
    for found in boards(pids):
        name, describe = _KINDS.get(found.board["kind"].partition(" ")[0], ("", environments))
        if name:
            try:
                seen[name].append(describe(found))
            except KeyError:  # a board of another Shoal, with other counters
                continue
    seen["services"] = [found for found in map(service, services()) if found is not None]
    trainings = runs.of_processes(pids)
    seen["runs"] = [runs.run(path, *runs.trainer_in(path, trainings)) for path in _run_folders(trainings, folder, most)]
    _add_memory(seen)
    for name in ("environments", "pools", "collectors", "remote_collectors", "listening_services", "runs"):
        seen[name].sort(key=lambda each: (_RANKS.get(each["state"], 1), each["pid"] or 0))
    return seen


def service(address: str) -> dict[str, Any] | None:
    """As observe(), and how its maker was called, and the memory of its servers."""
    seen = observe(address)
    if seen is None:
        return None
    command = command_of(seen["pid"]) if seen["pid"] is not None else ""
    return {**seen, "command": command, "memory_bytes": sum(map(memory_of, seen["servers"]))}


def _run_folders(trainings: dict[File, runs.Training], folder: Path | None, most: int) -> list[Path]:
    """Of each run one, be it there under several names: the one in `folder` before others."""
    found = [] if folder is None else [path.resolve() for path in runs.runs_in(folder, most)]
    found += [training.folder for training in trainings.values() if training.folder is not None]
    each: dict[Any, Path] = {}
    for path in found:
        each.setdefault(file_of(path) or path, path)
    return list(each.values())


def _add_memory(seen: dict[str, Any]) -> None:
    """Of a run: that of its process and of all that work for it; and how makers were called."""
    for name in ("environments", "pools", "collectors", "remote_collectors", "listening_services", "runs"):
        for each in seen[name]:
            each["command"] = command_of(each["pid"]) if each["pid"] is not None else ""
    for run in seen["runs"]:
        run["memory_bytes"] = 0 if run["pid"] is None else sum(map(memory_of, family(run["pid"])))
