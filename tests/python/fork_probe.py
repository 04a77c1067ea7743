"""Remembers which modules a process had when it was forked."""

from __future__ import annotations

import os
import sys

at_fork: set[str] = set()


def _remember() -> None:
    at_fork.clear()
    at_fork.update(sys.modules)


os.register_at_fork(after_in_child=_remember)
