"""Where the recorders of a process are."""

from __future__ import annotations

from collections.abc import Iterator

from shoal import _core
from shoal.stat.processes import descriptors

__all__ = ["recorders"]


def recorders(pid: int) -> Iterator[str]:
    """Paths that open the recorders which a process has open."""
    for path, what in descriptors(pid):
        if what.startswith(f"/memfd:{_core.trace.NAME} "):
            yield path
