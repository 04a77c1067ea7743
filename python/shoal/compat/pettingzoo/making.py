"""`make_vec` of parallel environments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from gymnasium.vector import AutoresetMode

from shoal.compat.arguments import factory_of, positive
from shoal.compat.pettingzoo.agents_env import AgentsEnv, check_parallel
from shoal.compat.pettingzoo.parallel_vector_env import ParallelVectorEnv
from shoal.vector.make import make_vec as make_shoal_vec

if TYPE_CHECKING:
    from shoal.compat.pettingzoo.agents_vec_env import AgentsVecEnv

__all__ = ["make_vec"]


@overload
def make_vec(
    parallel_env: Callable[..., Any],
    num_envs: int = 1,
    *,
    base_class: Literal["stable_baselines3"],
    env_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> AgentsVecEnv: ...


@overload
def make_vec(
    parallel_env: Callable[..., Any],
    num_envs: int = 1,
    *,
    base_class: Literal["gymnasium"] = "gymnasium",
    env_kwargs: Mapping[str, Any] | None = None,
    autoreset_mode: str | AutoresetMode = "next_step",
    **options: Any,
) -> ParallelVectorEnv: ...


def make_vec(
    parallel_env: Callable[..., Any],
    num_envs: int = 1,
    *,
    base_class: str = "gymnasium",
    env_kwargs: Mapping[str, Any] | None = None,
    autoreset_mode: str | AutoresetMode | None = None,
    **options: Any,
) -> ParallelVectorEnv | AgentsVecEnv:
    """Builds `num_envs` parallel environments and steps them together.

    Args:
        parallel_env: makes one, as `pettingzoo.butterfly.pistonball_v6.parallel_env` does.
        base_class: "gymnasium", or "stable_baselines3": a VecEnv, whose episodes begin in the step that ends one.
        env_kwargs: its keyword arguments.
        autoreset_mode: "next_step", the first step after all agents of an environment are gone resets it; or "disabled".
        **options: of `shoal.make_vec`, where they do not change observations or rewards: num_workers, backend, seed,
            on_fault, timeout, worker, ….

    Raises:
        ValueError: for agents whose spaces differ.
        TypeError: for an environment where a function is needed, for environments of other kinds, and for unknown options.
    """
    if not inspect.isclass(parallel_env):
        check_parallel(parallel_env)
    parallel_env = factory_of(parallel_env, "make_vec", "parallel_env")
    num_envs = positive(num_envs, "make_vec(num_envs=…)")
    for_sb3 = base_class == "stable_baselines3"
    if base_class not in ("gymnasium", "stable_baselines3"):
        raise ValueError(f"make_vec(base_class=…) takes 'gymnasium' or 'stable_baselines3', got {base_class!r}")
    if for_sb3 and autoreset_mode is not None:
        raise ValueError("make_vec(base_class='stable_baselines3') resets in its own way: leave autoreset_mode out")
    if for_sb3 and "drop" in (on_fault := options.get("on_fault"), getattr(on_fault, "on_fault", None)):
        raise ValueError("make_vec(on_fault='drop'): Stable-Baselines3 learns from all rows; take 'restart'")
    autoreset_mode = autoreset_mode or ("disabled" if for_sb3 else "next_step")
    if "num_cpus" in options:
        raise TypeError(
            f"make_vec() has no argument 'num_cpus', which is SuperSuit's: write num_workers={options['num_cpus']!r}"
        )
    for name in ("frame_stack", "reward_clip", "episode_statistics", "batch_size", "cohorts", "max_in_flight", "pool"):
        if options.get(name):
            raise ValueError(f"make_vec({name}=…) knows no agents: leave it out, or do it in parallel_env")
    if autoreset_mode in ("same_step", AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP.value):
        raise ValueError("make_vec(autoreset_mode='same_step') would hide the agents' last rewards: take 'next_step'")
    factory = functools.partial(AgentsEnv, parallel_env, **(env_kwargs or {}))
    vector_env = make_shoal_vec([factory] * num_envs, autoreset_mode=autoreset_mode, **options)
    try:
        envs = ParallelVectorEnv(vector_env)
        if not for_sb3:
            return envs
        from shoal.compat.pettingzoo.agents_vec_env import AgentsVecEnv

        return AgentsVecEnv(envs)
    except BaseException:
        vector_env.close()
        raise
