"""`observation_mode` of Gymnasium's vector environments: which spaces the whole has, from those of its environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import Space, spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

__all__ = ["ObservationMode", "check_mode", "check_shared_memory", "observation_spaces"]

ObservationMode = str | tuple[Space[Any], Space[Any]]
""""same", "different", or (batched space, single space)."""


def check_mode(mode: Any) -> None:
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(
                f"Expected both elements of observation_mode to be Spaces, got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch observation space, "
            f"actual got {mode}"
        )


def observation_spaces(
    mode: ObservationMode, own: Sequence[Space[Any]], num_envs: int, name: str
) -> tuple[Space[Any], Space[Any]]:
    """The batched and the single observation space.

    Args:
        own: the environments' spaces; the first one at least for "same", else all.
        name: of the class, for the message.

    Raises:
        RuntimeError: for spaces of different dtypes or shapes.
    """
    if mode == "same":
        return batch_space(own[0], num_envs), own[0]
    if mode == "different":
        return batch_differing_spaces(list(own)), own[0]
    assert not isinstance(mode, str)  # check_mode() has refused other words
    batched, single = mode
    for space in own:
        if not is_space_dtype_shape_equiv(space, single):
            raise RuntimeError(
                f"{name}(..., observation_mode='different' or custom space) however the sub-environments observation "
                f"spaces do not share a common shape and dtype, single_observation_space={single}, sub-environment "
                f"observation_space={space}"
            )
    return batched, single


def check_shared_memory(space: Space[Any]) -> None:
    """Refuses what Gymnasium's `shared_memory=True` refuses, with its errors. Shoal has room for all of them."""
    if isinstance(space, spaces.Graph | spaces.Sequence):
        raise TypeError(
            f"As {space} has a dynamic shape so its not possible to make a static shared memory. For `AsyncVectorEnv`, "
            "disable `shared_memory`."
        )
    if isinstance(space, spaces.Dict):
        below: Sequence[Space[Any]] = list(space.spaces.values())
    elif isinstance(space, spaces.Tuple | spaces.OneOf):
        below = space.spaces
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Text):
        below = ()
    else:
        raise ValueError(
            "Using `AsyncVector(..., shared_memory=True)` caused an error, you can disable this feature with "
            f"`shared_memory=False` however this is slower. {space} is a custom space."
        )
    for part in below:
        check_shared_memory(part)
