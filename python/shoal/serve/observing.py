"""The model services of this machine, seen from outside; and what one counts, under the names of its charts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal import _core
from shoal.errors import DeadlineExceeded, ServiceDied
from shoal.process.running import is_running

__all__ = ["ADDRESS", "absence", "observe", "scalars", "services"]

ADDRESS = "shoal-serve-"
"""What the addresses of services begin with."""
_PREFIX = f"@{ADDRESS}"
_PATIENCE = 2.0
"""Seconds for a service to answer who observes it."""


def services() -> list[str]:
    """The addresses of those that run in this process's network namespace, whoever started them."""
    names = (line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text().splitlines())
    return sorted({name[1:] for name in names if name.startswith(_PREFIX) and not name.endswith(".link")})


def observe(address: str) -> dict[str, Any] | None:
    """What the service there is and counts; None where there is none that answers (see absence()).

    Returns:
        `address`, `pid` of its maker, its `state` ("starting", "running", or "down" where no server runs), `instances` and how many of them
        are `running`, the process ids of their `servers`, `restarts`, `seconds` since its first server started, and `models` as
        ModelService.stats().
    """
    try:
        instances, running, seconds, models, pids, restarts = _core.serve.observe(address, _PATIENCE)
    except (RuntimeError, OSError, ValueError, ServiceDied, DeadlineExceeded):  # what answers may be no service
        return None
    return {
        "address": address,
        "pid": _maker(address),
        "state": "running" if running else "down" if instances else "starting",
        "instances": instances,
        "running": running,
        "servers": sorted({pid for pid in pids if is_running(pid)}),
        "restarts": restarts,
        "seconds": seconds,
        "models": models,
    }


def absence(address: str) -> str:
    """Why observe(address) sees nothing, in one line."""
    maker = _maker(address)
    if maker is None:
        return f"{address!r} is no address of a model service, which is like {ADDRESS}PID-NUMBER"
    if not is_running(maker):
        return f"the model service at {address} has ended with process {maker}, which made it"
    if address in services():
        return f"the model service at {address} does not answer; process {maker} made it"
    return f"the model service at {address} is closed; process {maker}, which made it, still runs"


def _maker(address: str) -> int | None:
    found = re.fullmatch(re.escape(ADDRESS) + r"(\d+)-[0-9a-f]+", address)
    return None if found is None else int(found[1])


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
