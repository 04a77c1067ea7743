"""A network's actions for observations in NumPy, as environments take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from shoal.learn.modules.network import Network, RecurrentNetwork
from shoal.serve.structure import tree_map

__all__ = ["Acting"]


class Acting:
    """Chooses actions for environments that are stepped together; of a recurrent module it keeps the state from call to call.

    Args:
        deterministic: as of Network.best().
    """

    def __init__(self, network: Network, action_space: Any, deterministic: bool | None = None) -> None:
        self._network = network
        self._space = action_space
        self._deterministic = deterministic
        self._state: Any = None

    def __call__(self, obs: Any, is_first: np.ndarray | None = None) -> np.ndarray:
        """[rows, …], of the action space's type; those of a Box clipped to its bounds.

        Args:
            is_first: [rows], whether they are the first of an episode; None: all of the first call, and none later.

        Raises:
            ValueError: where the module gave actions of another shape.
        """
        network = self._network
        obs = tree_map(lambda array: torch.from_numpy(np.ascontiguousarray(array)), obs)
        rows = len(_first(obs))
        memory: tuple[Any, ...] = ()
        if isinstance(network, RecurrentNetwork):
            memory = self._memory(network, rows, is_first)
        given = network.best(obs, self._deterministic, *memory)
        if network.is_recurrent:
            if "state" not in given:
                raise TypeError(f"{network.name} has an initial_state(): it returns a dict with the next 'state', too")
            self._state = given["state"]
        action: np.ndarray = torch.as_tensor(given["action"]).cpu().numpy()
        if action.shape != (rows, *self._space.shape):
            raise ValueError(
                f"{network.name} gave actions of shape {action.shape} for {rows} observations; they are of shape "
                f"{(rows, *self._space.shape)}"
            )
        if isinstance(self._space, spaces.Box) and self._space.dtype.kind == "f":
            action = np.clip(action, self._space.low, self._space.high)
        return action.astype(self._space.dtype)

    def _memory(self, network: RecurrentNetwork, rows: int, is_first: np.ndarray | None) -> tuple[Any, torch.Tensor]:
        if self._state is None or len(_first(self._state)) != rows:
            self._state = network.initial_state(rows)
            is_first = np.ones(rows, bool) if is_first is None else is_first
        elif is_first is None:
            is_first = np.zeros(rows, bool)
        return self._state, torch.as_tensor(is_first, device=network.device)


def _first(tree: Any) -> Any:
    while isinstance(tree, dict | tuple | list):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree
