"""Generators that workers forked from one process would share."""

from __future__ import annotations

import sys

__all__ = ["reseed"]


def reseed() -> None:
    """Seeds the global generators of `random`, NumPy and torch by the system, of those that are imported."""
    for name in ("random", "numpy.random", "torch"):
        if module := sys.modules.get(name):
            module.seed()
