"""Timelines: what each process was busy with, and when. `shoal trace` writes them, `shoal bench --explain` adds them up."""

from __future__ import annotations

from shoal.stat.family import family
from shoal.trace.breakdown import Breakdown, Part, breakdown
from shoal.trace.listening import Listener

__all__ = ["Breakdown", "Listener", "Part", "breakdown", "family"]
