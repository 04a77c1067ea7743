"""Stops all processes of a contestant, and lets them go on: who is not on turn takes no time from who is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

__all__ = ["processes_below", "resume", "stop"]

STOPPED = frozenset("TtZX")  # states of /proc/PID/stat in which nothing is computed, nor will be
TIMEOUT = 10.0


def stop(root: int) -> None:
    """Returns when `root`, all processes below it and all of its process group have stopped.

    Raises:
        TimeoutError: when one has not after ten seconds.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        # From the top: a parent that has stopped starts no more of them.
        found = processes_below(root)
        running = [pid for pid, state in found.items() if state not in STOPPED]
        if not running:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"of the processes below {root}, {len(running)} did not stop within {TIMEOUT:.0f} s")
        _send(running, signal.SIGSTOP)
        time.sleep(0.001)


def resume(root: int) -> None:
    """Those at the bottom first: none wakes up to one that does not answer."""
    _send(reversed(processes_below(root)), signal.SIGCONT)


def processes_below(root: int) -> dict[int, str]:
    """The state of `root`, of all processes below it and of its process group, parents before children; empty without it."""
    states: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    group: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as stat:
                state, parent, group_id = stat.read().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        pid = int(name)
        states[pid] = state
        children.setdefault(int(parent), []).append(pid)
        if int(group_id) == root:
            group.append(pid)
    found: dict[int, str] = {}
    unseen = [root, *group]
    while unseen:
        pid = unseen.pop(0)
        if pid in states and pid not in found:
            found[pid] = states[pid]
            unseen += children.get(pid, [])
    return found


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
