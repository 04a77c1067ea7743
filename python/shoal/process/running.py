"""Whether a process runs, as the kernel tells."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_running"]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended and waits for its parent to notice."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"
