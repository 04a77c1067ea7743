"""What a training run leaves, to compare with another's, and runs that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
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


def killed(program: str, run_dir: Path, due: Callable[[], bool]) -> None:
    """Starts a program, whose argument is `run_dir`, and kills it as soon as it is `due`; before, it is not to end."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(run_dir)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    try:
        while not due():
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
