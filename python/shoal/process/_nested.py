"""Workers that may start no processes: `WorkerOptions(nested=False)`."""

from __future__ import annotations

import errno
import sys
from typing import Any

from shoal import _core

__all__ = ["forbid_processes", "refuse_where_forbidden"]

_STARTING = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen"})


def forbid_processes() -> None:
    """From here on this process starts no other: Python code is told why, the kernel refuses everything else. A second call
    changes nothing."""
    if not _core.process.new_processes_forbidden():
        _core.process.forbid_new_processes()
        sys.addaudithook(_refuse)


def refuse_where_forbidden() -> None:
    if _core.process.new_processes_forbidden():
        raise PermissionError(
            errno.EPERM, "this worker may start no processes: it was made with WorkerOptions(nested=False)"
        )


def _refuse(event: str, _: Any) -> None:
    if event in _STARTING:
        refuse_where_forbidden()
