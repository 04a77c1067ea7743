"""Processes that code of a worker forks from it: they end by themselves, and do not answer for the worker."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from shoal.process._streams import flush_standard_streams

__all__ = ["end_forked_child", "exit_code", "report_from_here"]

_worker: int | None = None  # the process whose errors go to its parent


def report_from_here() -> None:
    """In a worker, as it begins: its errors are reported, those of processes that its code forks from it are not."""
    global _worker
    _worker = os.getpid()


def end_forked_child(error: BaseException) -> None:
    """In a process that code of a worker has forked from it, and that `error` has left: ends it, as the interpreter ends a
    program. It would go on as a second worker of the same name. Elsewhere: returns."""
    if _worker is None or _worker == os.getpid() or _is_of_multiprocessing():
        return
    code = 1
    try:
        if isinstance(error, SystemExit):
            code = exit_code(error)
        else:
            traceback.print_exception(error)
        flush_standard_streams()
    finally:
        os._exit(code)


def _is_of_multiprocessing() -> bool:
    """Whether this is a started Process, which has an end of its own."""
    module: Any = sys.modules.get("multiprocessing.process")
    own = ("BaseProcess", "_MainProcess")  # a worker's, by stock.begin() or by itself
    return module is not None and type(module.current_process()).__name__ not in own


def exit_code(request: SystemExit) -> int:
    """As the interpreter reads SystemExit.code."""
    value = request.code
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1
