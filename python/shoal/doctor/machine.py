"""How many CPUs there are for this process, and what they are worth."""

from __future__ import annotations

import os

from shoal.doctor import cgroup, cores
from shoal.doctor.finding import Finding

_AREA = "machine"


def examine() -> list[Finding]:
    return [_cpus(), _side_by_side(), _load()]


def usable_cpus() -> float:
    """What may run at a time: the affinity of this process, and its quota."""
    allowed = len(os.sched_getaffinity(0))
    quota = cgroup.cpus()
    return min(allowed, quota) if quota else allowed


def _cpus() -> Finding:
    total, allowed, quota = os.cpu_count() or 1, len(os.sched_getaffinity(0)), cgroup.cpus()
    value = f"{total} in the machine, {allowed} for this process" + (f", a quota of {quota:g}" if quota else "")
    workers = max(1, int(usable_cpus()))
    advice = f"more than {workers} workers pay only where an environment waits for something else than the CPU"
    if quota and quota < allowed:
        advice = f"libraries that count CPUs see {allowed} and start that many threads; give --num-workers {workers}"
        return Finding(_AREA, "CPUs", value, "warn", advice, f"export OMP_NUM_THREADS={workers}")
    return Finding(_AREA, "CPUs", value, "ok", advice)


def _side_by_side() -> Finding:
    try:
        found = cores.side_by_side()
    except OSError as error:
        return Finding(
            _AREA, "cores", "could not be measured", "warn", f"{error}; look again when the machine is less busy"
        )
    advice = ""
    if found.halves:
        advice = (
            "two workers make little more than one here: judge Shoal, and anything else that runs in parallel, by what these "
            "CPUs are worth, or take a machine with cores of its own"
        )
    return Finding(_AREA, "cores", str(found), "warn" if found.halves else "ok", advice)


def _load() -> Finding:
    load = os.getloadavg()[0]
    value = f"{load:.1f} (mean of the last minute)"
    if load > len(os.sched_getaffinity(0)) + 1:
        advice = "other programs use the CPUs: steps per second will be low and vary"
        return Finding(_AREA, "load", value, "warn", advice, "ps -eo pid,user,pcpu,args --sort=-pcpu | head")
    return Finding(_AREA, "load", value)
