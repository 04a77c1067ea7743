"""The helper that makes network namespaces lies beside the benchmarks, which use it as well."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests/python")]
