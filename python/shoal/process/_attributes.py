"""What a process hands on by fork and exec beside its memory and its files: permissions, limits, CPUs and priority.

A zygote has them from the moment at which it was started. Its workers are to have them as their parent has them when it
asks for workers: what cannot be given back, permissions, makes a zygote useless, and the rest travels.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

__all__ = ["capture", "permissions", "take_over"]

Attributes = dict[str, Any]

_LIMITS = sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")})
_PERMISSIONS = (b"Uid", b"Gid", b"Groups", b"Cap", b"NoNewPrivs", b"Seccomp")


def permissions() -> tuple[bytes, ...]:
    """What this thread may do: its users and groups (real, effective, saved), capabilities, and whether system calls are
    filtered. As the kernel writes them, to be compared."""
    found = tuple(line for line in _status() if line.startswith(_PERMISSIONS))
    return found or tuple(str(each).encode() for each in (os.getresuid(), os.getresgid(), os.getgroups()))


def capture() -> Attributes:
    """Of this process; CPUs and priority are those of this thread, which are what it would hand on."""
    umask = next((line.split()[1] for line in _status() if line.startswith(b"Umask")), None)
    return {
        "umask": umask and int(umask, 8),  # os.umask() would change it for a moment
        "limits": tuple(map(resource.getrlimit, _LIMITS)),
        "cpus": frozenset(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def take_over(attributes: Attributes) -> None:
    """In a worker: what its parent has captured, as far as this process may. CPUs that it was placed on stay its own."""
    if attributes["umask"] is not None:
        os.umask(attributes["umask"])
    for limit, wanted in zip(_LIMITS, attributes["limits"], strict=True):
        if resource.getrlimit(limit) != wanted:
            _set_limit(limit, *wanted)
    own = os.sched_getaffinity(0)
    # Who places workers chooses from their parent's CPUs, and launcher() sees to it that a zygote has no fewer.
    cpus = own & attributes["cpus"] or attributes["cpus"]
    with contextlib.suppress(OSError):
        if cpus != own:
            os.sched_setaffinity(0, cpus)
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) != attributes["nice"]:
            os.setpriority(os.PRIO_PROCESS, 0, attributes["nice"])


def take_over_cpus(attributes: Attributes) -> None:
    """In a zygote, which nobody places: also CPUs that the thread which started it has not."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, attributes["cpus"])


def _set_limit(limit: int, soft: int, hard: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (soft, hard))
        return
    own = resource.getrlimit(limit)[1]  # which this process may not raise
    infinite = soft == resource.RLIM_INFINITY
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(limit, (own if infinite or 0 <= own < soft else soft, own))


def _status() -> list[bytes]:
    try:
        fd = os.open("/proc/thread-self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(fd, 1 << 16).splitlines()
    finally:
        os.close(fd)
