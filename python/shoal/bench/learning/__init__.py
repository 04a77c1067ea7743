"""Trains with many seeds, and tells what came of it: beside Stable-Baselines3 with the same settings, and beside what others publish."""

from __future__ import annotations

from shoal.bench.learning.references import REFERENCES, Reference
from shoal.bench.learning.robust import interquartile_mean, interval
from shoal.bench.learning.rows import HOURS, ROWS, Row, row_named
from shoal.bench.learning.suite import run

__all__ = ["HOURS", "REFERENCES", "ROWS", "Reference", "Row", "interquartile_mean", "interval", "row_named", "run"]
