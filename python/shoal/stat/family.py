"""A process and those that work for it."""

from __future__ import annotations

from shoal.stat.boards import boards
from shoal.stat.processes import mine, parent_of

__all__ = ["family"]


def family(pid: int) -> set[int]:
    """`pid`, all that it has started, directly or not, and the workers of its vector environments, pools and collectors."""
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
