"""The directory of a run, as src/shoal/learn/run/run_directory.h describes it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.learn.config import RUN_FORMAT, read_run
from shoal.learn.durable import found, replace_file

__all__ = ["RunDirectory"]

_VERSION = 1


class RunDirectory:
    """Made where it is not there, and locked. A new run begins without what is left of one that has no checkpoint.

    Raises:
        ValueError: where it holds a run already, or holds none to resume.
        RuntimeError: where another process trains in it.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.last = path / "checkpoints" / "last"
        self.best = path / "checkpoints" / "best"
        self._progress: int | None = None
        self._lock: int | None = None
        is_there = found(self.last).exists()
        if resume and not is_there:
            raise ValueError(f"{path} holds no run to resume: there is no {self.last}")
        if not resume and is_there:
            raise ValueError(f"{path} already holds a run: go on with it by resume=True, or choose another directory")
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._maker = os.getpid()
        if not _take(self._lock):
            self.release()
            raise RuntimeError(f"another process is training in {path}")
        if not resume:
            _remove_remains(path)

    def write_config(self, config: Mapping[str, Any]) -> None:
        self._write("config.json", {**config, "format": RUN_FORMAT, "version": _VERSION})

    def write_result(self, result: Mapping[str, Any]) -> None:
        self._write("result.json", result)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        replace_file(self.path / name, (json.dumps(content, indent=1) + "\n").encode())

    def start_progress(self, step: int) -> None:
        """A new run starts with none; a resumed one drops the lines after `step`, which it is about to make again."""
        file = self.path / "progress.jsonl"
        kept = b""
        if step and file.exists():
            kept = b"".join(line for line in file.read_bytes().splitlines(keepends=True) if _until(line, step))
        replace_file(file, kept)
        self._progress = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def append_progress(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        assert self._progress is not None
        os.write(self._progress, (json.dumps({"step": step, "seconds": seconds, **values}) + "\n").encode())

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Lets others have the directory; only the paths can be asked for from now on."""
        if self._lock is not None and self._maker == os.getpid():
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # or a forked child would keep it
        for fd in (self._progress, self._lock):
            if fd is not None:
                os.close(fd)
        self._progress = self._lock = None


def _take(lock: int) -> bool:
    """False where another process trains. One that only looks shares the lock for a moment, as in run_directory.cc."""
    end = time.monotonic() + 1
    while not _locked(lock, fcntl.LOCK_EX):
        if time.monotonic() >= end or not _locked(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.sched_yield()
    return True


def _locked(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_remains(path: Path) -> None:
    """What a run left that was killed before it had a checkpoint to go on from: none of it is the new run's."""
    try:
        read_run(path)
    except (OSError, ValueError):
        return  # no run was here
    for left in (path / "checkpoints").glob("best*"):
        shutil.rmtree(left, ignore_errors=True)  # what cannot be removed is replaced, or stays
    with contextlib.suppress(OSError):
        (path / "result.json").unlink(missing_ok=True)


def _until(line: bytes, step: int) -> bool:
    """Whether it is a whole line, of this step or an earlier one."""
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        return line.endswith(b"\n") and isinstance(record, dict) and record.get("step", step + 1) <= step
    return False
