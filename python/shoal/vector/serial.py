"""Builds the environments of a vector environment in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shoal import _core
from shoal.identity.this_worker import introduce
from shoal.vector.factories import Recipe
from shoal.vector.options import WorkerOptions
from shoal.vector.preparation import prepare_here
from shoal.vector.worker import EnvGroup, build_envs, warn_of_close

__all__ = ["start"]


def start(
    recipe: Recipe,
    autoreset_mode: str,
    options: WorkerOptions,
    *,
    config: Any = None,
    setup: Callable[[], Any] | None = None,
    seeds: Sequence[int | None] | None = None,
    check: Callable[[list[Any]], None] | None = None,
    episode_options: Mapping[str, Any] | None = None,
    same_observations: bool = True,
    exact: bool = False,
    first_env: int = 0,
    make: Callable[[list[Any], EnvGroup], _core.VectorEnv] | None = None,
) -> tuple[_core.VectorEnv, EnvGroup, _core.process.SharedState]:
    """The engine, what it leaves to Python, and what the environments share.

    Args:
        check: called with the environments when they are built; what it raises closes them.
        episode_options: see shoal.vector.episodes.
        same_observations, exact: as for worker processes (processes.py).
        first_env: what `shoal.worker().env_index` is for the first of them.
        make: makes another engine than the one that steps the environments all together.
    """
    shared_state = _core.process.SharedState.create(options.shared_bytes)
    worker = introduce(
        _core.process.Identity(first_env=first_env, num_envs=len(recipe.factories), shared_state=shared_state)
    )
    with worker.scope():
        try:
            prepare_here(config, setup, seeds, worker, options)
            envs = build_envs(recipe.factories, first_env)
        except BaseException:
            worker.close()
            raise
        group = EnvGroup(envs, 0, recipe.factories, same_observations, episode_options)
        try:
            if check is not None:
                check(envs)
            if make is not None:
                engine = make(envs, group)
            else:
                engine = _core.serial_vector_env(envs, group, autoreset_mode, same_observations, exact)
        except BaseException:
            warn_of_close(group.close())
            raise
    return engine, group, shared_state
