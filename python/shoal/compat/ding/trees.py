"""DI-engine's V2 results: observations and timesteps as trees of arrays (treetensor.numpy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import treetensor.numpy as tnp
from ding.utils import make_key_as_identifier, remove_illegal_item

__all__ = ["by_environment", "offered", "one_action_each", "stacked", "timestep_tree", "timestep_trees"]

try:
    from treevalue.tree.common import create_storage as _create_storage
except ImportError:  # of another version
    _create_storage = None

_NUMBERS = (bool, int, float, np.generic, np.ndarray)


def stacked(observations: Sequence[Any]) -> Any:
    """One array, or tree of arrays, with a row an observation."""
    if type(observations[0]) is np.ndarray:
        return np.stack(list(observations))
    return tnp.stack([tnp.array(obs) for obs in observations])


def one_action_each(actions: Any) -> Any:
    """The parts of a batch of actions; a tree of arrays is split along its first axis."""
    if isinstance(actions, tnp.ndarray):
        return [part.squeeze(0) for part in tnp.split(actions, actions.shape[0])]
    return actions


def offered(ready_obs: Mapping[int, Any], env_ids: Sequence[int], states: Mapping[int, Any]) -> Any:
    """The observations of these environments, which wait for an action, as stacked().

    Raises:
        RuntimeError: where there are none; the message has the states of all.
    """
    if not env_ids:
        raise RuntimeError(
            f"ready_obs: no environment waits for an action; their states are {states}. reset() those that are to go on"
        )
    return stacked([ready_obs[i] for i in env_ids])


def by_environment(actions: Any, env_ids: Sequence[int]) -> dict[int, Any]:
    """A batch of actions, one for each of these environments, in their order.

    Raises:
        ValueError: for another number of actions.
    """
    parts = list(one_action_each(actions))
    if len(parts) != len(env_ids):
        raise ValueError(f"step(): {len(parts)} actions for the {len(env_ids)} environments {env_ids}")
    return dict(zip(env_ids, parts, strict=True))


def timestep_trees(timesteps: Mapping[int, Any]) -> list[Any]:
    """One a timestep, in their order."""
    return [timestep_tree(timestep, i) for i, timestep in timesteps.items()]


def timestep_tree(timestep: Any, env_id: int) -> Any:
    """As the peer's `tnp.array({…})`, in a fortieth of its time: info's keys become names, and its text is left out."""
    obs, reward, done, info = timestep
    info = remove_illegal_item(make_key_as_identifier(info))
    tree = {"obs": obs, "reward": reward, "done": done, "info": info, "env_id": env_id}
    if _create_storage is not None:
        leaves = _leaves(tree)
        if leaves is not None:
            return tnp.ndarray(_create_storage(leaves))
    return tnp.array(tree)


def _leaves(tree: dict[Any, Any]) -> dict[Any, Any] | None:
    """Every value as an array of its own, dicts as storages; None where the library has a better idea of it."""
    leaves: dict[Any, Any] = {}
    for key, value in tree.items():
        if type(key) is not str or not key.isidentifier():
            return None
        if type(value) is dict:
            below = _leaves(value)
            if below is None:
                return None
            leaves[key] = _create_storage(below)
        elif isinstance(value, _NUMBERS):
            leaves[key] = np.array(value)
        else:
            return None
    return leaves
