"""Programs as users run them, for the tests of learning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def python(
    code: str, *arguments: str | Path, timeout: float | None = 60, **kwargs: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user would: in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        **kwargs,
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
