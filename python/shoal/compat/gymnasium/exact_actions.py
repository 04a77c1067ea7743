"""Actions reach the environments with the types that the caller gave them, as in Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import Space, spaces
from gymnasium.vector.utils import iterate

from shoal.vector.vector_env import VectorEnv

__all__ = ["step_exactly"]


def _in_order(single: Space[Any], batched: Space[Any]) -> bool:
    """Whether the keys of a Dict come in the order in which Gymnasium gives them to an environment: the batched space's."""
    if isinstance(single, spaces.Dict) and isinstance(batched, spaces.Dict):
        return list(single.spaces) == list(batched.spaces) and all(
            _in_order(space, batched[key]) for key, space in single.spaces.items()
        )
    if isinstance(single, spaces.Tuple) and isinstance(batched, spaces.Tuple):
        return all(map(_in_order, single.spaces, batched.spaces))
    return True


def step_exactly(envs: VectorEnv, actions: Any, step_async: Callable[[Any], None]) -> None:
    """Begins a step: by `step_async` where the actions are arrays of the action space's own dtypes, else (lists, other
    dtypes, spaces without arrays, keys in another order) with each environment's part as Gymnasium's `iterate` takes it out.

    Raises:
        ValueError: for another number of actions than of environments; nothing has been stepped then.
        TypeError: for what is no batch.
    """
    if envs._io.fits(actions) and _in_order(envs.single_action_space, envs.action_space):
        step_async(actions)
        return
    envs._check_idle("step_async")
    parts = list(iterate(envs.action_space, actions))
    if len(parts) != envs.num_envs:
        raise ValueError(f"step(): {len(parts)} actions for {envs.num_envs} environments")
    envs._step_async_whole(parts)
