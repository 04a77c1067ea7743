"""What this process has printed and not written yet."""

from __future__ import annotations

import sys

__all__ = ["flush_standard_streams"]


def flush_standard_streams() -> None:
    """Writes it: before a fork, whose child would write it once more, and before an end that skips the interpreter's own."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
