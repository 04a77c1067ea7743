"""The log lines of Shoal's C++ parts, as records of Python's logging."""

from __future__ import annotations

import logging

__all__ = ["deliver"]

_LEVELS = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def deliver(level: str, source: str, text: str, who: str, pid: int) -> bool:
    """Hands a line to the logger `shoal.<source>`, where a handler would see it; False: there is none, so that it goes to stderr.

    Args:
        who: the worker that said it, in process `pid`: `%(processName)s` and `%(process)d` of the record. "": this process.
    """
    logger = logging.getLogger(f"shoal.{source}")
    if not logger.hasHandlers():
        return False
    number = _LEVELS[level]
    if logger.isEnabledFor(number):
        record = logger.makeRecord(logger.name, number, "(shoal)", 0, text, (), None)
        if who:
            record.processName, record.process = who, pid
        logger.handle(record)
    return True
