"""What a training run leaves, to compare with another's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CPU = Path("/proc/cpuinfo").read_text()
BFLOAT16_IS_FASTER = "amx_bf16" in CPU or all(word in CPU for word in ("avx512_bf16", "AuthenticAMD"))
learns_in_bfloat16 = pytest.mark.skipif(
    not BFLOAT16_IS_FASTER, reason="the processor has neither AMX nor AMD's AVX512_BF16"
)
PRECISIONS = ["float32", pytest.param("bfloat16", marks=learns_in_bfloat16)]


def arrays(run_dir: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((run_dir / "checkpoints/last").glob("*.safetensors"))}


def lines(run_dir: Path) -> list[dict[str, float]]:
    """progress.jsonl without what depends on time."""
    timed = {"seconds", "time/fps", "time/time_elapsed", "charts/SPS"}
    records = [json.loads(line) for line in (run_dir / "progress.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name not in timed} for record in records]
