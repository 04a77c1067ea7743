"""A network's actions for observations in NumPy, as environments take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from shoal.learn.modules.network import Network
from shoal.serve.structure import tree_map

__all__ = ["act"]


def act(network: Network, action_space: Any, obs: Any, deterministic: bool | None = None) -> np.ndarray:
    """[rows, …], of the action space's type; those of a Box clipped to its bounds.

    Raises:
        ValueError: where the module gave actions of another shape.
    """
    obs = tree_map(lambda array: torch.from_numpy(np.ascontiguousarray(array)), obs)
    rows = len(_first(obs))
    action: np.ndarray = network.best(obs, deterministic).numpy()
    if action.shape != (rows, *action_space.shape):
        raise ValueError(
            f"{network.name} gave actions of shape {action.shape} for {rows} observations; they are of shape "
            f"{(rows, *action_space.shape)}"
        )
    if isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f":
        action = np.clip(action, action_space.low, action_space.high)
    return action.astype(action_space.dtype)


def _first(tree: Any) -> Any:
    while isinstance(tree, dict | tuple):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree
