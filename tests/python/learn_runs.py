"""What a training run leaves, to compare with another's."""

from __future__ import annotations

import json
from pathlib import Path


def arrays(run_dir: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((run_dir / "checkpoints/last").glob("*.safetensors"))}


def lines(run_dir: Path) -> list[dict[str, float]]:
    """progress.jsonl without what depends on time."""
    timed = {"seconds", "time/fps", "time/time_elapsed", "charts/SPS"}
    records = [json.loads(line) for line in (run_dir / "progress.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name not in timed} for record in records]
