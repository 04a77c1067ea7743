"""Limits of the control groups that this process is in: the smallest on the way up to the root.

Read here and not by `shoal._core`, which has them as well: `shoal doctor` looks at a machine where that cannot be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def number(
    file: str, legacy: str | None = None, root: Path = _ROOT, groups: Path = Path("/proc/self/cgroup")
) -> int | None:
    """The smallest number in `file` (version 2) or `legacy` ("controller/file" of version 1); None if unlimited."""
    found = []
    for text in _texts(file, legacy, root, groups):
        word = text.split()[0] if text.split() else "max"
        if word.lstrip("-").isdigit() and 0 <= int(word) < 1 << 60:
            found.append(int(word))
    return min(found, default=None)


def cpus(root: Path = _ROOT, groups: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPUs' worth of time that the quota allows; None if there is none."""
    found = []
    for text in _texts("cpu.max", None, root, groups):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            found.append(int(quota) / int(period))
    quota_us = number("", "cpu/cpu.cfs_quota_us", root, groups)
    period_us = number("", "cpu/cpu.cfs_period_us", root, groups)
    if quota_us and period_us and quota_us > 0:
        found.append(quota_us / period_us)
    return min(found, default=None)


def _texts(file: str, legacy: str | None, root: Path, groups: Path) -> Iterator[str]:
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


def _up(top: Path, path: str, file: str) -> Iterator[str]:
    # In a container the path may name a group outside of what is mounted: the walk ends at the mount either way.
    folder = top / path.lstrip("/")
    while True:
        try:
            yield (folder / file).read_text().strip()
        except OSError:
            pass
        if folder == top or top not in folder.parents:
            return
        folder = folder.parent
