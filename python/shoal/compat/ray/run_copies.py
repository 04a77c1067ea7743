"""Copies of a run's folder, made while the run goes on in it: what Ray keeps as a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["RunCopies"]


class RunCopies:
    """Of the run in one folder. A copy is a folder of a run, too: it can be resumed, evaluated and loaded.

    A checkpoint is replaced as a whole, by a rename, so a folder that is the same one before and after it was copied was
    copied whole.

    Threads: one at a time.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._copied = self._stands()

    @property
    def _last(self) -> Path:
        return self._run_dir / "checkpoints" / "last"

    def _stands(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Which checkpoint and which result there are."""
        return _which(self._last), _which(self._run_dir / "result.json")

    def newer(self, into: Path) -> bool:
        """Copies the run into `into`, which is not there yet, where its checkpoint or its result is newer than the last copy's;
        else False."""
        is_now = self._stands()
        if is_now[0] is None or is_now == self._copied:
            return False
        copied = _copy(self._last, into / "checkpoints" / "last")
        if copied is None:
            return False
        self._copied = copied, is_now[1]
        _copy(self._run_dir / "checkpoints" / "best", into / "checkpoints" / "best")
        for name in ("config.json", "progress.jsonl", "result.json"):  # after it: a resume drops lines that are newer
            if (self._run_dir / name).exists():
                shutil.copy2(self._run_dir / name, into / name)
        return True


def _which(folder: Path) -> tuple[int, int] | None:
    """Which one is there now; None: none."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _copy(folder: Path, into: Path) -> tuple[int, int] | None:
    """Copies the whole of a folder that may be replaced meanwhile, and returns which one that was; None where there is none."""
    while (before := _which(folder)) is not None:
        try:
            shutil.copytree(folder, into)
        except (FileNotFoundError, shutil.Error):
            if _which(folder) == before:
                raise
            # It was replaced, and what was begun to be copied is gone.
        else:
            if _which(folder) == before:
                return before
        shutil.rmtree(into, ignore_errors=True)
    return None
