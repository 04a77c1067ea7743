"""What Ray has given the process that asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray

from shoal import learn

__all__ = ["end_actors", "with_defaults", "workers_here"]

_SAVE_EVERY = 5.0
"""Seconds between two checkpoints of a run."""


def workers_here() -> int:
    """How many processes step environments where nobody says it: one for each CPU of Ray's that this actor or worker was given;
    with one it steps them itself. The machine's others are not its own, though it sees them."""
    cpus = int(ray.get_runtime_context().get_assigned_resources().get("CPU", 0))
    return cpus if cpus > 1 else 0


def with_defaults(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a run, with what Ray's workers have where nobody says it. Runs with a replay, which is in each of their checkpoints,
    keep to their presets' times."""
    own: dict[str, Any] = {"num_workers": workers_here()}
    if "buffer_size" not in learn.config_names(options.get("algorithm") or learn.algorithm_names()[0]):
        own["save_every_seconds"] = _SAVE_EVERY
    return own | options


def end_actors(actors: Iterable[Any], calls: Iterable[Any]) -> None:
    """Ends actors, whatever they are at. What they were asked for is cancelled first: Ray would say that it tries it again."""
    for call in calls:
        ray.cancel(call)
    for actor in actors:
        ray.kill(actor)
