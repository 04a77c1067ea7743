"""What a collector counts for those who look from outside (`shoal stat`)."""

from __future__ import annotations

from collections.abc import Sequence

from shoal import _core

__all__ = ["CollectorBoard"]

_NAMES = (
    *("envs", "collectors", "frames", "total_frames", "batches", "wait_ns", "pending", "policy_version", "restarts"),
    *("paused", "collecting", "since_ns"),
)
_INDEX = {name: i for i, name in enumerate(_NAMES)}


class CollectorBoard:
    """Ends with the collector."""

    def __init__(self, mode: str, envs: int, collectors: int, total_frames: int | None) -> None:
        self._board = _core.board.Board("collector", [*_NAMES, *(f"worker {i}" for i in range(collectors))])
        self._board.set_title(mode)
        self._collectors = collectors
        self.set(envs=envs, collectors=collectors, total_frames=total_frames or 0)
        self._now("since_ns")

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self._board.set(_INDEX[name], value)

    def set_processes(self, pids: Sequence[int]) -> None:
        """Of the collectors."""
        for i in range(self._collectors):
            self._board.set(len(_NAMES) + i, pids[i] if i < len(pids) else 0)

    def begin(self) -> None:
        """A batch is waited for."""
        self.set(collecting=1)
        self._now("since_ns")

    def done(self, **totals: int) -> None:
        """It is there."""
        self.set(collecting=0, **totals)
        self._now("since_ns")

    def end(self) -> None:
        self._board.end()

    def _now(self, name: str) -> None:
        self._board.set(_INDEX[name], _core.board.now_ns())
