"""The machine that something was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from shoal._version import __version__
from shoal.doctor.cores import side_by_side

__all__ = ["cpu_name", "machine"]


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Its CPUs, and what they are worth side by side; versions."""
    worth = side_by_side()
    return {
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "worth": worth.worth,
        "halves": worth.halves,
        "side_by_side": str(worth),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "shoal": __version__,
    }
