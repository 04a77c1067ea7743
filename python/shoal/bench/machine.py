"""The machine that something was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from shoal._version import __version__
from shoal.doctor.cores import side_by_side

__all__ = ["machine"]


def machine() -> dict[str, Any]:
    """Its CPUs, and what they are worth side by side; versions."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    worth = side_by_side()
    return {
        "cpu": cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "worth": worth.worth,
        "halves": worth.halves,
        "side_by_side": str(worth),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "shoal": __version__,
    }
