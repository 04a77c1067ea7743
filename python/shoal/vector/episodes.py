"""What the engine does around every environment: statistics, time limit, frame stack, reward clip."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["add_statistics", "episode_options", "native_arguments", "options_text"]


def episode_options(
    episode_statistics: bool, max_episode_steps: int | None, frame_stack: int | None, reward_clip: Any
) -> dict[str, Any]:
    """The arguments of `make_vec`, checked; those that are left out are not in it."""
    options: dict[str, Any] = {}
    if episode_statistics:
        options["statistics"] = True
    for name, value in (("max_episode_steps", max_episode_steps), ("frame_stack", frame_stack)):
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"make_vec({name}=…) takes an int, got {value!r}")
        if not 1 <= value < 2**31:
            raise ValueError(f"make_vec({name}=…) takes at least 1, got {value}")
        options[name] = int(value)
    if reward_clip is not None:
        try:
            low, high = (float(bound) for bound in reward_clip)
        except (TypeError, ValueError):
            raise TypeError(f"make_vec(reward_clip=…) takes two numbers, (low, high), got {reward_clip!r}") from None
        if not low <= high:
            raise ValueError(f"make_vec(reward_clip=…) takes the lower bound first, got {reward_clip!r}")
        options["reward_clip"] = (low, high)
    return options


def native_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same as arguments of a native environment."""
    named = {"statistics": "episode_statistics"}
    bound = np.finfo(np.float64).max  # JSON has no infinity
    return {
        named.get(name, name): [max(value[0], -bound), min(value[1], bound)] if name == "reward_clip" else value
        for name, value in options.items()
    }


def add_statistics(
    infos: dict[str, Any], returns: np.ndarray, lengths: np.ndarray, seconds: np.ndarray, ended: np.ndarray
) -> None:
    """`infos["episode"]` as `gymnasium.wrappers.vector.RecordEpisodeStatistics` makes it. Statistics of an environment's own
    wrapper stay.

    Raises:
        ValueError: where an environment calls something else so.
    """
    if not ended.any():
        return
    own = infos.get("episode")
    if own is None:
        infos["episode"] = {"r": returns, "l": lengths, "t": np.round(seconds, 6)}
        infos["_episode"] = ended
    elif not (isinstance(own, dict) and {"r", "l"} <= own.keys()):
        raise ValueError(
            "make_vec(episode_statistics=True): an episode's statistics are infos['episode'], which is also a key of an "
            f"environment's own info: {own!r}. Rename that, or leave episode_statistics out"
        )


def options_text(options: Mapping[str, Any] | None) -> str:
    """Options of a reset as native environments take them."""
    if not options:
        return ""
    numbers = {}
    for name, value in options.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"native environments take numbers as reset options, got {name}={value!r}") from None
    return json.dumps(numbers)
