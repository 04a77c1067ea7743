"""Batches by trajectory instead of by time."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.serve.structure import tree_map

__all__ = ["split_trajectories"]


def split_trajectories(batch: dict[str, Any]) -> dict[str, Any]:
    """`[steps, envs, …]` arrays as `[trajectories, longest, …]` ones: what each episode has in this batch is a row, padded
    with zeros at its end; `valid` is False there. Environment by environment, in the order of time."""
    ids = batch["episode_id"]
    steps, envs = ids.shape
    begins = np.ones((envs, steps), np.bool_)
    begins[:, 1:] = ids.T[:, 1:] != ids.T[:, :-1]
    flat = np.flatnonzero(begins)  # of [envs, steps]
    lengths = np.diff(flat, append=envs * steps)
    at = np.arange(lengths.max())
    inside = at < lengths[:, None]
    places = np.where(inside, flat[:, None] + at, 0)

    def rows(array: np.ndarray) -> np.ndarray:
        by_env = array.swapaxes(0, 1).reshape(envs * steps, *array.shape[2:])
        found = by_env[places]
        found[~inside] = 0
        return found

    return {name: tree_map(rows, value) for name, value in batch.items()}
