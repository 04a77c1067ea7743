"""The environments of a run: what to build, how it is called, building and closing it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import shoal
from shoal.vector.vector_env import VectorEnv

__all__ = ["build", "close", "name_of", "recorded_env"]


def name_of(env: Any) -> str:
    """What the environment is called in reports: its id, or the name of the class or factory."""
    if isinstance(env, str):
        return env
    if isinstance(env, Sequence) and env:
        return name_of(env[0])
    return getattr(env, "__name__", type(env).__name__)


def build(
    env: Any,
    num_envs: int,
    *,
    num_workers: int | None,
    env_kwargs: Mapping[str, Any] | None,
    backend: str = "auto",
    context: str = "auto",
) -> VectorEnv:
    """`num_envs` of them; of a list of factories, in turn."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        env = [env[i % len(env)] for i in range(num_envs)]
    if num_workers is not None:
        num_workers = min(num_workers, num_envs)
    return shoal.make_vec(
        env, num_envs, num_workers=num_workers, env_kwargs=env_kwargs, backend=backend, context=context, copy=False
    )


def close(envs: VectorEnv) -> None:
    """What environments raise then is a warning: a run's result, or what ended it, counts more."""
    try:
        envs.close()
    except Exception as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        warnings.warn(
            f"while the environments were closed: {type(error).__name__}: {error} ({notes})",
            RuntimeWarning,
            stacklevel=3,
        )


def recorded_env(run: Mapping[str, Any], env: Any) -> Any:
    """The environment to build for a recorded run: `env` where it is given, else the id that the run recorded."""
    if env is not None:
        return env
    if not run.get("env_is_id", True):
        raise ValueError(f"the run was trained on {run['env']}, which is not an id: give it as env=")
    return run["env"]
