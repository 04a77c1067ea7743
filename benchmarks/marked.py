"""Parts of pages that programs write: what stands between two lines."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_between"]


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    before, found_begin, rest = path.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"{path} lacks the lines {begin} and {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
