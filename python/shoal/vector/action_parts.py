"""Actions that are sent for some environments at a time, where all of them are stepped together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

__all__ = ["batch_of_dicts", "batch_of_parts", "checked_ids", "with_part"]


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


def with_part(parts: Mapping[int, Any], ids: list[int], actions: Any, space: gymnasium.Space[Any]) -> dict[int, Any]:
    """`parts` with an action for each of `ids`, of an action space. Raises ValueError where there are more or fewer."""
    rows = list(_rows_of(actions, len(ids), space))
    if len(rows) != len(ids):
        raise ValueError(f"send: {len(rows)} actions for {len(ids)} env_ids")
    return {**parts, **dict(zip(ids, rows, strict=True))}


def batch_of_parts(parts: Mapping[int, Any], space: gymnasium.Space[Any]) -> Any:
    """The actions of all environments as step() takes them."""
    ordered = [parts[i] for i in range(len(parts))]
    room: Any = create_empty_array(space, len(parts))
    return concatenate(space, ordered, room)


def batch_of_dicts(actions: list[Any], space: gymnasium.spaces.Dict) -> Any:
    """Actions that are one dict an environment as one dict of their values; others as they are, which send() refuses."""
    if not actions or not all(
        isinstance(action, Mapping) and space.spaces.keys() == action.keys() for action in actions
    ):
        return actions
    room: Any = create_empty_array(space, len(actions))
    return concatenate(space, actions, room)


def _rows_of(actions: Any, count: int, space: gymnasium.Space[Any]) -> Iterator[Any]:
    if isinstance(actions, np.ndarray | dict | tuple):
        return iterate(batch_space(space, max(count, 1)), actions)
    return iter(actions)
