"""Actions that are sent for some environments at a time, where all of them are stepped together."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError

from shoal import _core

__all__ = ["batch_of", "checked_ids", "with_part"]


def checked_ids(env_ids: Any, num_envs: int, parts: Mapping[int, Any]) -> list[int]:
    """The environments that actions are sent for; `parts` are the actions that wait for others, by environment.

    Raises:
        TypeError, ValueError: for what are no numbers of environments, each at most once.
        gymnasium.error.AlreadyPendingCallError: where the action of one of them waits already.
    """
    ids = np.asarray(env_ids)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise TypeError(f"send(): env_ids must be integers, the numbers of the environments, got {env_ids!r}")
    listed: list[int] = ids.tolist()
    outside = [i for i in listed if not 0 <= i < num_envs]
    if outside:
        raise ValueError(f"send: there are no environments {outside}; their ids are 0 to {num_envs - 1}")
    if len(set(listed)) != len(listed):
        twice = sorted({i for i in listed if listed.count(i) > 1})
        raise ValueError(f"send: environments {twice} came twice; send each at most once until recv() has returned it")
    busy = sorted(parts.keys() & set(listed))
    if busy:
        raise AlreadyPendingCallError(
            f"send: environments {busy} are in flight already; recv() first. Nothing was sent", "send"
        )
    return listed


def with_part(
    parts: Mapping[int, Any], ids: list[int], actions: Any, space: gymnasium.Space[Any], io: _core.BatchIo
) -> dict[int, Any]:
    """`parts` with an action for each of `ids`: copies, as the environments get them.

    Raises:
        ValueError: for actions that step() would refuse.
    """
    if isinstance(actions, list) and isinstance(space, spaces.Dict):
        actions = batch_of(actions, space)
    try:
        samples = io.samples_of(actions, len(ids))
        if _core.has_objects(space):
            samples = copy.deepcopy(samples)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"send(): actions that do not fit, one for each of env_ids {ids}: {error}. Nothing was sent"
        ) from error
    return {**parts, **dict(zip(ids, samples, strict=True))}


def batch_of(actions: list[Any], space: gymnasium.Space[Any]) -> Any:
    """One action an environment as a batch, whose leaves are lists. What is no dict or tuple of the space stays as it is, for
    send() to refuse."""
    if isinstance(space, spaces.Dict):
        if actions and all(isinstance(one, Mapping) and one.keys() == space.spaces.keys() for one in actions):
            return {key: batch_of([one[key] for one in actions], part) for key, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        size = len(space.spaces)
        if actions and all(isinstance(one, Sequence | np.ndarray) and len(one) == size for one in actions):
            return tuple(batch_of([one[i] for one in actions], part) for i, part in enumerate(space.spaces))
    return actions
