"""How workers start here, what they inherit, and how many may live."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.doctor import cgroup, containers, software
from shoal.doctor.finding import Finding

_AREA = "processes"
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_FILES_ENOUGH = 1024
_PROCESSES_ENOUGH = 1024
_PROCESSES_WANTED = 4096
_ZYGOTE_VARIABLES = ("SHOAL_IDLE_ZYGOTES", "SHOAL_IDLE_ZYGOTE_SECONDS")
_MIB = 1 << 20


def examine() -> list[Finding]:
    return [
        *_start_method(),
        _threads(),
        _thread_variables(),
        _preloads(),
        _pidfd(),
        _open_files(),
        _process_limit(),
        _zygotes(),
    ]


def _start_method() -> list[Finding]:
    why = "workers are forked from a clean helper process, which is safe whatever this one holds"
    findings = [Finding(_AREA, "start method", "auto = forkserver", advice=why)]
    try:
        from shoal import _core
    except ImportError:
        return findings  # software says so
    hazards = _core.process.fork_hazards()
    value = "; ".join(hazards) if hazards else "none in this process"
    advice = "context='fork' would be refused here; auto works" if hazards else ""
    return [
        *findings,
        Finding(_AREA, "fork hazards", value, "ok", advice),
        _launcher(_core.process.is_launcher_variable),
    ]


def _threads() -> Finding:
    count = len(os.listdir("/proc/self/task"))
    return Finding(_AREA, "threads", f"{count} in this process")


def _thread_variables() -> Finding:
    seen = {name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ}
    if not seen:
        return Finding(
            _AREA, "thread pools", "no variable set", advice="workers get 1 thread each (OMP, MKL, OpenBLAS, torch)"
        )
    value = " ".join(f"{name}={text}" for name, text in seen.items())
    odd = [name for name, text in seen.items() if not (first := text.split(",")[0]).isdigit() or int(first) < 1]
    if odd:
        advice = "not a number of threads: libraries fall back to one a CPU"
        return Finding(_AREA, "thread pools", value, "warn", advice, f"unset {' '.join(odd)}")
    return Finding(_AREA, "thread pools", value, advice="of this process; workers get 1 thread each")


def _launcher(is_launcher_variable: Callable[[str], bool]) -> Finding:
    found = sorted(name for name in os.environ if is_launcher_variable(name))
    if not found:
        return Finding(_AREA, "launcher", "no variable of torchrun, MPI, Slurm, …")
    value = ", ".join(found[:4]) + (f" and {len(found) - 4} more" if len(found) > 4 else "")
    advice = "hidden from the workers, so that none of them joins the learner's group"
    return Finding(_AREA, "launcher", value, advice=advice)


def _preloads() -> Finding:
    value = os.environ.get("LD_PRELOAD", "")
    if not value:
        return Finding(_AREA, "LD_PRELOAD", "not set")
    advice = "loaded into every worker as well; unset it if a worker behaves oddly"
    return Finding(_AREA, "LD_PRELOAD", value, "warn", advice, "unset LD_PRELOAD")


def _pidfd() -> Finding:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        advice = "without it the death of a worker goes unseen: allow pidfd_open in the container's seccomp profile"
        return Finding(_AREA, "pidfd", f"refused: {error}", "fail", advice, containers.WITHOUT_SECCOMP)
    return Finding(_AREA, "pidfd", "works")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{_limit(soft)} (" + ("the hard limit)" if soft == hard else f"may be raised to {_limit(hard)})")
    if soft != resource.RLIM_INFINITY and soft < _FILES_ENOUGH:
        wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
        advice, remedy = "Shoal needs 2 a worker; other libraries want more", f"ulimit -n {wanted}"
        if wanted < _FILES_ENOUGH:
            advice += (
                "; the hard limit (ulimit -Hn) is raised by who started this: root's /etc/security/limits.conf, LimitNOFILE= "
                "of a systemd unit"
            )
            remedy = containers.raised("nofile", "--ulimit nofile=65536", 65536)
        return Finding(_AREA, "open files", value, "warn", advice, remedy)
    return Finding(_AREA, "open files", value)


def _process_limit() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    group = cgroup.number("pids.max")
    limits = [limit for limit in (soft if soft != resource.RLIM_INFINITY else None, group) if limit is not None]
    value = f"{_limit(soft)} a user" + (f", {group} in this container" if group is not None else "")
    if limits and min(limits) < _PROCESSES_ENOUGH:
        advice = "threads count too: too few for many workers"
        if group is not None and min(limits) == group:
            remedy = containers.raised_tasks(_PROCESSES_WANTED)
        elif hard == resource.RLIM_INFINITY or hard >= _PROCESSES_WANTED:
            remedy = f"ulimit -u {_PROCESSES_WANTED}"
        else:
            remedy = containers.raised("nproc", f"--ulimit nproc={_PROCESSES_WANTED}", _PROCESSES_WANTED)
        return Finding(_AREA, "processes", value, "warn", advice, remedy)
    return Finding(_AREA, "processes", value)


def _zygotes() -> Finding:
    """Those of all programs of this user, by the name that a zygote gives itself; this program's first, then the oldest."""
    name = "zygotes"
    found = [zygote for zygote in map(_zygote, _pids()) if zygote is not None]
    try:
        from shoal.process import keep_idle_zygotes

        count, seconds = keep_idle_zygotes()
    except ImportError as error:
        advice = f"none can be started: {error}".replace("\n", " ")
        return Finding(_AREA, name, f"{len(found)}", "fail", advice, software.how_to_build())
    except ValueError as error:
        odd = [variable for variable in _ZYGOTE_VARIABLES if variable in str(error)]
        return Finding(_AREA, name, str(error), "fail", "set it right, or unset it", f"unset {' '.join(odd)}")
    rule = f"a program keeps {count} idle ones for {seconds:g} s: shoal.process.keep_idle_zygotes(), SHOAL_IDLE_ZYGOTES"
    if not found:
        return Finding(_AREA, name, "none", advice=rule)
    idle = [zygote for zygote in found if not zygote.children]
    shown = sorted(found, key=lambda zygote: (zygote.parent != os.getpid(), -zygote.age))[:4]
    each = [
        f"pid {zygote.pid} of {zygote.parent}: {'idle, ' if not zygote.children else ''}"
        f"{zygote.age:.0f} s old, {zygote.memory / _MIB:.0f} MiB"
        for zygote in shown
    ]
    each += [f"{len(found) - len(shown)} more"] if len(found) > len(shown) else []
    total = sum(zygote.memory for zygote in found) / _MIB
    value = f"{len(found)} of this user's programs, {total:.0f} MiB, {len(idle)} idle ({'; '.join(each)})"
    return Finding(_AREA, name, value, advice=rule)


@dataclass(frozen=True)
class _Zygote:
    pid: int
    parent: int
    age: float  # seconds
    memory: int  # bytes that are its own
    children: bool


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _zygote(pid: int) -> _Zygote | None:
    """None: it is something else, somebody else's, or has ended meanwhile."""
    folder = Path(f"/proc/{pid}")
    try:
        if (folder / "comm").read_text() != "shoal-zygote\n" or folder.stat().st_uid != os.geteuid():
            return None
        _, parent, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
        _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
        children = (folder / "task" / str(pid) / "children").read_text()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError):
        return None
    age = uptime - int(rest[17]) / os.sysconf("SC_CLK_TCK")
    return _Zygote(pid, int(parent), max(0.0, age), (resident - shared) * mmap.PAGESIZE, bool(children))


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
