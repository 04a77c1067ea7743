"""Collecting experience: batches of what any policy did in many environments.

import shoal

with shoal.Collector("CartPole-v1", policy, num_envs=16, frames_per_batch=1024, total_frames=100_000) as collector:
    for batch in collector:
        ...  # batch["obs"], ["action"], ["reward"], ["terminated"], …
"""

from shoal.collect.collector import Collector

__all__ = ["Collector"]
