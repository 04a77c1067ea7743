"""Limits of the control groups that this process is in: the smallest on the way up to the root.

Read here and not by `shoal._core`, which has them as well: `shoal doctor` looks at a machine where that cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/sys/fs/cgroup")


def number(
    file: str, legacy: str | None = None, root: Path = _ROOT, groups: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The smallest number in `file` (version 2) or `legacy` ("controller/file" of version 1); None if unlimited."""
    found = (_number(path) for path in _files(file, legacy, root, groups))
    return min((each for each in found if each is not None), default=None)


class Memory(NamedTuple):
    """Of one group, in bytes."""

    limit: int
    used: int

    @property
    def left(self) -> int:
        return self.limit - self.used


def memory(total: int, root: Path = _ROOT, groups: Path = Path("/proc/self/cgroup")) -> Memory | None:
    """Of the groups with a limit below `total` bytes, the one with the least left: an outer one counts what others in it use, too."""
    found = []
    for file in _files("memory.max", "memory/memory.limit_in_bytes", root, groups):
        used = "memory.current" if file.name == "memory.max" else "memory.usage_in_bytes"
        if (limit := _number(file)) is not None and limit < total:
            found.append(Memory(limit, _number(file.with_name(used)) or 0))
    return min(found, key=lambda each: each.left, default=None)


def cpus(root: Path = _ROOT, groups: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPUs' worth of time that the quota allows; None if there is none."""
    found = []
    for file in _files("cpu.max", None, root, groups):
        quota, _, period = _text(file).partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            found.append(int(quota) / int(period))
    quota_us = number("", "cpu/cpu.cfs_quota_us", root, groups)
    period_us = number("", "cpu/cpu.cfs_period_us", root, groups)
    if quota_us and period_us and quota_us > 0:
        found.append(quota_us / period_us)
    return min(found, default=None)


def _text(file: Path) -> str:
    """Nothing of what is not there."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _number(file: Path) -> int | None:
    """None if it says that there is no limit, or is not there."""
    word = (_text(file).split() or ["max"])[0]
    return int(word) if word.lstrip("-").isdigit() and 0 <= int(word) < 1 << 60 else None


def _files(file: str, legacy: str | None, root: Path, groups: Path) -> Iterator[Path]:
    """Of each group on the way up, be it there or not."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers and file:
            yield from _up(root, path, file)
        elif legacy and (name := legacy.split("/")[0]) in controllers.split(","):
            yield from _up(root / name, path, legacy.split("/", 1)[1])


def _up(top: Path, path: str, file: str) -> Iterator[Path]:
    # In a container the path may name a group outside of what is mounted: the walk ends at the mount either way.
    folder = top / path.lstrip("/")
    while True:
        yield folder / file
        if folder == top or top not in folder.parents:
            return
        folder = folder.parent
