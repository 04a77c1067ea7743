"""Processes of this user, as the kernel tells of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

__all__ = ["command_of", "descriptors", "memory_of", "mine"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def mine() -> list[int]:
    """Those of this user. One that ends meanwhile is left out by whoever asks about it."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == os.getuid():
                    found.append(int(entry.name))
            except OSError:
                continue
    return sorted(found)


def descriptors(pid: int) -> Iterator[tuple[str, str]]:
    """What a process holds open: the path that opens it anew, and what it is. Nothing where that may not be seen."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            yield path, os.readlink(path)
        except OSError:
            continue


def memory_of(pid: int) -> int:
    """Resident bytes that are its own: without files and shared memory. 0 where there is no such process."""
    try:
        _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def command_of(pid: int) -> str:
    """How it was called; "" where there is no such process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return shlex.join(os.fsdecode(word) for word in words if word)
