"""Steps the same environments under Shoal and under its peers, in one run, alternating."""

from __future__ import annotations

from shoal.bench.result import BenchResult, Comparison, Measurement
from shoal.bench.roster import CONTESTANTS
from shoal.bench.suite import run
from shoal.bench.workloads import WORKLOADS

__all__ = ["CONTESTANTS", "WORKLOADS", "BenchResult", "Comparison", "Measurement", "run"]
