"""Training runs, of those that go on and those that have ended: from their directories (src/shoal/learn/run/run_directory.h)."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from shoal.stat.processes import File, descriptors, file_of, locker_of, parent_of

__all__ = ["Training", "is_run", "is_trained_in", "of_processes", "run", "runs_in", "trainer_in"]

_TAIL = 65536


class Training(NamedTuple):
    """A lock of a run that is held."""

    folder: Path | None
    """The run. None: what its process calls so is something else here, as with the folders of a container."""
    pid: int | None
    """Who trains. None: it has ended, and a process that it had forked has the lock still."""


def of_processes(pids: Iterable[int]) -> dict[File, Training]:
    """What these processes train, by the file that is the lock: who took it trains."""
    holders: dict[File, dict[int, str]] = {}
    folders: dict[File, Path] = {}
    for pid in pids:
        for path, what in descriptors(pid):
            if not what.endswith("/lock") or (file := file_of(path)) is None:
                continue
            holders.setdefault(file, {})[pid] = path
            if file_of(what) == file and is_run(Path(what).parent):
                folders[file] = Path(what).parent
    trainings = {file: _training(folders.get(file), those) for file, those in holders.items()}
    return {file: training for file, training in trainings.items() if training is not None}


def _training(folder: Path | None, holders: dict[int, str]) -> Training | None:
    """Of the processes that have a lock open, who took it: the others were forked. None: nobody holds it any more."""
    lockers = set(map(locker_of, holders.values())) - {None}
    if lockers:
        return Training(folder, next(iter(lockers & holders.keys()), None))
    if not _is_locked(next(iter(holders.values()))):
        return None
    return Training(folder, min(pid for pid in holders if parent_of(pid) not in holders))


def trainer_in(folder: Path, seen: dict[File, Training]) -> tuple[bool, int | None]:
    """Whether a run is trained, and by which process; None: by nobody, or by one that cannot be seen from here.

    Args:
        seen: of_processes().
    """
    lock = file_of(folder / "lock")
    if lock is not None and lock in seen:
        pid = seen[lock].pid
        return pid is not None, pid
    return is_trained_in(folder), None


def is_trained_in(folder: Path) -> bool:
    """Whether somebody holds the lock of a run, be it a process that cannot be seen from here."""
    return _is_locked(folder / "lock")


def _is_locked(lock: str | Path) -> bool:
    try:
        with open(lock) as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def runs_in(folder: Path, most: int) -> list[Path]:
    """Those in a folder, the youngest first; of the folder of a run that one."""
    if is_run(folder):
        return [folder]
    return sorted(filter(is_run, folder.glob("*")), key=_began, reverse=True)[:most]


def _began(folder: Path) -> float:
    try:
        return os.stat(folder / "config.json").st_mtime
    except OSError:  # it was removed meanwhile
        return 0.0


def is_run(folder: Path) -> bool:
    return _read(folder / "config.json").get("format") == "shoal.run"


def run(folder: Path, trained: bool, pid: int | None) -> dict[str, Any]:
    """Of what its directory says, and of who trains in it (trainer_in())."""
    config, result = _read(folder / "config.json"), _read(folder / "result.json")
    told = config.get("config")
    options: dict[str, Any] = told if isinstance(told, dict) else {}
    records = _last_records(folder / "progress.jsonl")
    steps = max((_number(record, "step") or 0 for record in records), default=0)
    steps_at_end = _number(result, "steps") or 0
    ended = bool(result) and steps_at_end >= steps and not trained
    ending = result.get("ending") if ended else None
    state = "failed" if ending == "failed" else "ended" if ended else "killed"
    if trained:
        state = "training"
    elif _number(result, "steps") is None and (folder / "result.json").exists():
        state = "damaged"
    merged: dict[str, Any] = {}
    for record in records:
        merged |= record
    return {
        "run_dir": str(folder),
        "pid": pid,
        "state": state,
        "ending": ending,
        "error": {"failed": result.get("error"), "damaged": "result.json cannot be read"}.get(state),
        "environment": config.get("env"),
        "algorithm": config.get("algorithm"),
        "envs": _number(options, "num_envs"),
        "steps": steps_at_end if ended else steps,
        "total_steps": _number(options, "total_steps"),
        "seconds": _number(merged, "seconds"),
        "steps_per_second": _number(merged, "time/fps"),
        "mean_return": _number(result, "mean_return") if ended else _number(merged, "rollout/ep_rew_mean"),
        "record_seconds": _age(folder),
    }


def _number(values: dict[str, Any], name: str) -> Any:
    """None for what is no number, or an integer that no counter has: who looks at many runs gets past an odd one."""
    value = values.get(name)
    return value if type(value) is float or (type(value) is int and value.bit_length() < 64) else None


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
    except (OSError, ValueError, RecursionError):
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
        except (ValueError, RecursionError):  # the first, cut off; or damaged
            continue
        if isinstance(record, dict):
            records.append(record)
    return records
