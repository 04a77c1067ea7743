"""A process and those that work for it."""

from __future__ import annotations

from collections.abc import Iterator

from shoal import _core
from shoal.stat.boards import boards
from shoal.stat.processes import descriptors, mine, parent_of

__all__ = ["family", "recorders"]


def family(pid: int) -> set[int]:
    """`pid`, all that it has started, directly or not, and the workers of its vector environments and pools."""
    known = mine()
    children: dict[int, list[int]] = {}
    for process in known:
        children.setdefault(parent_of(process), []).append(process)
    found: set[int] = set()
    new = {pid} & set(known)
    while new:
        found |= new
        started = {child for parent in new for child in children.get(parent, ())}
        new = (started | _workers_of(new)) - found
    return found


def _workers_of(pids: set[int]) -> set[int]:
    counted = [found.board["counters"] for found in boards(pids) if found.board["pid"] in pids]
    words = (word for counters in counted for name, word in counters.items() if name.startswith("worker "))
    return {pid for word in words if (pid := word & 0xFFFFFFFF)}


def recorders(pid: int) -> Iterator[str]:
    """Paths that open the recorders which a process has open."""
    for path, what in descriptors(pid):
        if what.startswith(f"/memfd:{_core.trace.NAME} "):
            yield path
