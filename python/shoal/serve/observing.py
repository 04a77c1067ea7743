"""The model services of this machine, seen from outside; and what one counts, under the names of its charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.errors import DeadlineExceeded, ServiceDied

__all__ = ["observe", "scalars", "services"]

_PREFIX = "@shoal-serve-"
_PATIENCE = 2.0
"""Seconds for a service to answer who observes it."""


def services() -> list[str]:
    """The addresses of those that run in this process's network namespace, whoever started them."""
    names = (line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text().splitlines())
    return sorted({name[1:] for name in names if name.startswith(_PREFIX) and not name.endswith(".link")})


def observe(address: str) -> dict[str, Any] | None:
    """What the service there is and counts; None where it has just ended, or is another user's.

    Returns:
        `address`, `pid` of its maker, `instances`, `seconds` since its first server started, and `models` as
        ModelService.stats().
    """
    try:
        instances, seconds, models = _core.serve.observe(address, _PATIENCE)
    except (ServiceDied, DeadlineExceeded):
        return None
    pid = int(address.removeprefix(_PREFIX[1:]).partition("-")[0])
    return {"address": address, "pid": pid, "instances": instances, "seconds": seconds, "models": models}


def scalars(stats: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What ModelService.stats() returned as flat names and numbers, times in milliseconds, for TensorBoard and its kin."""
    flat: dict[str, float] = {}
    for model, values in stats.items():
        for name, value in values.items():
            if not isinstance(value, Mapping):
                flat[f"serve/{model}/{name}"] = float(value)
            elif name == "batch_rows":
                flat[f"serve/{model}/batch_rows"] = value["mean"]
            else:
                for part in ("mean", "p50", "p99"):
                    flat[f"serve/{model}/{name}_{part}_ms"] = 1000.0 * value[part]
    return flat
