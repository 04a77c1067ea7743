"""The scalars of a run as TensorBoard's event file, in the run's folder.

The learner names them as Stable-Baselines3 and CleanRL do, so that a run lies in one chart with theirs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class EventLog:
    """Writes the event file of one run, in the place of those that `instead_of` names.

    Keeps what it is given until `open_after` seconds have passed, and only then imports tensorboard (0.2 s of a CPU): a
    run of a few seconds pays for that after its end.
    """

    def __init__(
        self,
        run_dir: Path,
        resumed_at: int | None = None,
        open_after: float = 3.0,
        instead_of: Sequence[Path] = (),
    ):
        self._run_dir = run_dir
        self._opens_at = time.monotonic() + open_after
        self._writer: Any = None
        self._kept: list[tuple[float, int, Mapping[str, float]]] = []
        self._resumed_at = resumed_at
        for older in instead_of:
            older.unlink(missing_ok=True)

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        self._kept.append((time.time(), step, scalars))
        if self._writer is not None or time.monotonic() >= self._opens_at:
            self._write()

    def close(self) -> None:
        """All that was added is in the file afterwards."""
        if self._kept:
            self._write()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._writer is None:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            self._writer = EventFileWriter(str(self._run_dir), flush_secs=10)
            if self._resumed_at is not None:
                # Steps after the checkpoint happen again: TensorBoard drops what the interrupted run wrote of them.
                start = SessionLog(status=SessionLog.START)
                self._writer.add_event(Event(wall_time=time.time(), step=self._resumed_at, session_log=start))
        for wall_time, step, scalars in self._kept:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            self._writer.add_event(Event(wall_time=wall_time, step=step, summary=Summary(value=values)))
        self._kept.clear()
