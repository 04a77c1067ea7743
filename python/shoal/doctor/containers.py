"""Remedies for limits that whoever started this process has set: an engine of containers, or else root."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["WITHOUT_SECCOMP", "inside", "raised", "raised_tasks", "run"]

_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


def inside() -> bool:
    """Whether this is a container of Docker's or Podman's."""
    return any(mark.exists() for mark in _MARKS)


def run(option: str) -> str:
    """The container anew, with an option more."""
    return f"docker run {option} IMAGE"


WITHOUT_SECCOMP = run("--security-opt seccomp=unconfined")


def raised(limit: str, option: str, value: int) -> str:
    """A hard limit of this shell, or of the container.

    Args:
        limit: as prlimit names it.
        option: of `docker run`.
    """
    return run(option) if inside() else f"sudo prlimit --pid $$ --{limit}={value}"


def raised_tasks(value: int) -> str:
    """How many processes and threads the control group may have."""
    if inside():
        return run(f"--pids-limit {value}")
    return f"sudo systemctl set-property user-{os.getuid()}.slice TasksMax={value}"
