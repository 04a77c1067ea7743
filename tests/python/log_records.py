"""What Python's logging is handed of Shoal's lines: see the fixture `records`."""

from __future__ import annotations

import logging
import threading

__all__ = ["Records"]

BOUND = 60.0
"""Seconds in which what is awaited comes."""


class Records(logging.Handler):
    """Keeps what it is handed, and in which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.seen = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.seen.release()

    def next(self) -> logging.LogRecord:
        assert self.seen.acquire(timeout=BOUND)
        return self.records[-1]
