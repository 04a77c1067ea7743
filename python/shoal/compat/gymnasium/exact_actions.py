"""Actions reach the environments with the types that the caller gave them, as in Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.vector.utils import iterate

from shoal.vector.vector_env import VectorEnv

__all__ = ["step_exactly"]


def step_exactly(envs: VectorEnv, actions: Any, step_async: Callable[[Any], None]) -> None:
    """Begins a step: by `step_async` where the actions are arrays of the action space's own dtypes, else (lists, other
    dtypes, spaces without arrays) with each environment's part as Gymnasium's `iterate` takes it out.

    Raises:
        ValueError: for another number of actions than of environments; nothing has been stepped then.
        TypeError: for what is no batch.
    """
    if envs._io.fits(actions):
        step_async(actions)
        return
    envs._check_idle("step_async")
    parts = list(iterate(envs.action_space, actions))
    if len(parts) != envs.num_envs:
        raise ValueError(f"step(): {len(parts)} actions for {envs.num_envs} environments")
    envs._step_async_whole(parts)
