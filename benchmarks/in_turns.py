"""Two or more sides measured in turns: what is compared is the ratio of each round, since machines change their speed meanwhile."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any


def rates_of(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each side's function returns, steps/s, once in every round."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, run in sides.items():
            rates[side].append(run())
    return rates


def compared(rates: Mapping[str, list[float]], ratio: str, *, first_is_above: bool) -> dict[str, dict[str, Any]]:
    """For each side its median in steps/s, and as `ratio` the median of its rounds' ratios to the first side's, with their range.

    Args:
        first_is_above: how many times as fast the first side is as this one; else this one as the first.
    """
    first = next(iter(rates.values()))
    rows = {}
    for side, own in rates.items():
        pairs = zip(first, own, strict=True) if first_is_above else zip(own, first, strict=True)
        ratios = [above / below for above, below in pairs]
        rows[side] = {
            "steps_per_second": round(statistics.median(own)),
            ratio: round(statistics.median(ratios), 2),
            "from": round(min(ratios), 2),
            "to": round(max(ratios), 2),
        }
    return rows


def show(rows: Mapping[str, Mapping[str, Any]], ratio: str) -> None:
    width = max(map(len, rows))
    for side, row in rows.items():
        spread = f"x {row[ratio]:.2f} ({row['from']:.2f} - {row['to']:.2f})"
        print(f"  {side:{width}} {row['steps_per_second']:9,} steps/s   {spread}", flush=True)
