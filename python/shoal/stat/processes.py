"""Processes of this user, as the kernel tells of them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "File",
    "command_of",
    "descriptors",
    "file_of",
    "in_a_container",
    "locker_of",
    "memory_of",
    "mine",
    "parent_of",
]

File = tuple[int, int]
"""Device and inode: the same file, whatever it is called."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


def mine() -> list[int]:
    """Those of this user. One that ends meanwhile is left out by whoever asks about it."""
    found = []
    own = _namespace("self")
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == os.getuid() and _namespace(entry.name) in (own, None):
                    found.append(int(entry.name))
            except OSError:
                continue
    return sorted(found)


def _namespace(process: str) -> str | None:
    """In which processes are numbered: one in another, a container's, writes numbers down that are of others here. None where that
    may not be seen."""
    try:
        return os.readlink(f"/proc/{process}/ns/pid")
    except OSError:
        return None


def in_a_container(target: str) -> str | None:
    """Why nothing is shown of the process with this number, where that is the reason."""
    if not target.isdecimal() or _namespace(target) in (_namespace("self"), None):
        return None
    return f"process {target} is in a container, which numbers its processes itself: look from inside (docker exec)"


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


def file_of(path: str | Path) -> File | None:
    """None where there is none, or it may not be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def locker_of(descriptor: str) -> int | None:
    """Who took the exclusive flock() that this descriptor (descriptors()) holds: of a fork's, the process that was forked.
    None: nobody, or the file's system keeps its locks to itself, as those of FUSE may."""
    try:
        text = Path(descriptor.replace("/fd/", "/fdinfo/")).read_text()
    except OSError:
        return None
    found = re.search(r"^lock:\s+\d+: FLOCK\s+\w+\s+WRITE (\d+) ", text, re.MULTILINE)
    return None if found is None else int(found[1])


def parent_of(pid: int) -> int:
    """0 where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


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
