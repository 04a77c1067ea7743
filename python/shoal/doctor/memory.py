"""How much memory there is, and whether it can be shared."""

from __future__ import annotations

import fcntl
import mmap
import os
import re
from pathlib import Path

from shoal.doctor import cgroup, containers
from shoal.doctor.finding import Finding

_AREA = "memory"
_GIB = 1 << 30
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0x7
_ADD_SEALS = getattr(fcntl, "F_ADD_SEALS", 1033)


def examine() -> list[Finding]:
    return [_memory(), _memfd(), _dev_shm(), _overcommit()]


def _memory() -> Finding:
    table = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    available = int(table["MemAvailable"]) * 1024
    total = int(table["MemTotal"]) * 1024
    value = f"{total / _GIB:.1f} GiB, {available / _GIB:.1f} available"
    if (group := cgroup.memory(total)) is not None:
        value += f"; this container: {group.limit / _GIB:.1f} GiB, {group.used / _GIB:.1f} used"
        available = min(available, group.left)
    if available < _GIB:
        advice = "little is left: the kernel may kill a worker (exit by SIGKILL)"
        remedy = "ps -eo pid,user,rss,args --sort=-rss | head"
        if group is not None and group.left == available and containers.inside():
            remedy = containers.run(f"--memory {group.limit // _GIB + 4}g")
        return Finding(_AREA, "memory", value, "warn", advice, remedy)
    return Finding(_AREA, "memory", value)


def _memfd() -> Finding:
    """Does what an arena does: create, size, seal, map, write."""
    try:
        descriptor = os.memfd_create("shoal-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, mmap.PAGESIZE)
            fcntl.fcntl(descriptor, _ADD_SEALS, _SEALS)
            with mmap.mmap(descriptor, mmap.PAGESIZE) as mapping:
                mapping[0] = 1
        finally:
            os.close(descriptor)
    except OSError as error:
        advice = "all shared rows live in memfds: allow memfd_create in the container's seccomp profile"
        return Finding(_AREA, "memfd", f"refused: {error}", "fail", advice, containers.WITHOUT_SECCOMP)
    return Finding(_AREA, "memfd", "works, with seals")


def _dev_shm() -> Finding:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return Finding(_AREA, "/dev/shm", "none", advice="Shoal does not use it; torch's DataLoader would")
    size, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    value = f"{size / _GIB:.2f} GiB, {free / _GIB:.2f} free"
    if free < _GIB // 8:
        advice = "small: no matter to Shoal; others want more"
        return Finding(_AREA, "/dev/shm", value, advice=advice, remedy=containers.run("--shm-size=2g"))
    return Finding(_AREA, "/dev/shm", value)


def _overcommit() -> Finding:
    mode = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    if mode == "2":
        advice = "a large process may fail to fork although memory is free; workers of Shoal start from a small one"
        remedy = "sudo sysctl vm.overcommit_memory=0"
        return Finding(_AREA, "overcommit", "never (vm.overcommit_memory=2)", "warn", advice, remedy)
    return Finding(_AREA, "overcommit", {"0": "heuristic", "1": "always"}.get(mode, mode))
