"""What runs, or ran, on this machine for this user: what `shoal stat` shows. Reads only; asks nobody but model services."""

from __future__ import annotations

from shoal.stat.machine import VERSION, snapshot

__all__ = ["VERSION", "snapshot"]
