"""Vector environments of native environments, whose workers are threads, or processes without Python."""

from __future__ import annotations

import json
from typing import Any

from gymnasium.envs.registration import EnvSpec

import shoal.process
from shoal import _core
from shoal.vector.episodes import native_arguments
from shoal.vector.options import WorkerOptions
from shoal.vector.plan import Plan
from shoal.vector.processes import shares

__all__ = ["description", "start"]


def start(plan: Plan) -> tuple[_core.VectorEnv, _core.process.SharedState]:
    """The engine, and what its environments share."""
    try:
        arguments = json.dumps(plan.env_kwargs | native_arguments(plan.episodes))
    except TypeError as error:
        raise TypeError(f"native environments take keyword arguments that JSON can hold: {error}") from None
    if plan.pool is not None:
        counts = shares(plan.num_envs, plan.pool.num_workers)
        session = _core.native_session(plan.recipe.native_id, arguments)
        options = plan.async_options(plan.pool.options.for_engine)
        return plan.pool.open([session] * len(counts), counts, options, False), plan.pool.shared_state
    shared_state = _core.process.SharedState.create(plan.options.shared_bytes)
    if plan.batches is None:
        return _stepped_together(plan, arguments, shared_state), shared_state
    return _stepped_one_by_one(plan, arguments, shared_state), shared_state


def _stepped_together(plan: Plan, arguments: str, shared_state: _core.process.SharedState) -> _core.VectorEnv:
    in_processes: dict[str, Any] = {}
    if plan.backend == "process":
        launcher = _launcher(plan.context, plan.options)
        in_processes = {"launcher": launcher, "workers": _for_processes(plan.options)}
    return _core.native_vector_env(
        plan.recipe.native_id,
        num_envs=plan.num_envs,
        num_workers=max(1, plan.num_workers),
        backend=plan.backend,
        autoreset_mode=plan.mode,
        faults=plan.faults,
        env_args=arguments,
        shared_state=shared_state,
        **in_processes,
    )


def _stepped_one_by_one(plan: Plan, arguments: str, shared_state: _core.process.SharedState) -> _core.VectorEnv:
    launcher, workers = None, plan.options.for_engine
    if plan.backend == "process":
        launcher, workers = _launcher(plan.context, plan.options), _for_processes(plan.options)
    return _core.async_native_vector_env(
        plan.recipe.native_id,
        plan.num_envs,
        max(1, plan.num_workers),
        plan.backend,
        arguments,
        plan.async_options(workers),
        shared_state,
        launcher,
    )


def description(engine: _core.VectorEnv, plan: Plan) -> dict[str, Any]:
    """What a vector environment must know of its environments."""
    native_id, kwargs = plan.recipe.native_id, plan.env_kwargs
    known = _core.env.find(native_id)
    limit = kwargs.get("max_episode_steps")
    if limit is None:
        limit = known.max_episode_steps
    has_limit = limit > 0  # 0 of an id, and -1 as an argument, are none
    spec = EnvSpec(
        native_id,
        reward_threshold=known.reward_threshold,
        max_episode_steps=limit if has_limit else None,
        kwargs=kwargs,
    )
    return {
        "observation_space": engine.single_observation_space,
        "action_space": engine.single_action_space,
        "metadata": {},
        "render_mode": None,
        "spec": spec,
    }


def _launcher(context: str, options: WorkerOptions) -> _core.process.Launcher:
    """Of workers without Python; with "fork" they are copies of this process that never return to Python."""
    if context == "fork":
        return shoal.process.launcher("fork", **options.for_launcher).handle
    given = options.for_launcher
    return _core.process.create_native_launcher(
        method=context,
        environment=[(str(name), str(value)) for name, value in given["env"].items()],
        threads=given["threads"],
        hide_gpu=given["hide_gpu"],
        start_timeout=given["start_timeout"],
    )


def _for_processes(options: WorkerOptions) -> dict[str, Any]:
    """WorkerOptions.for_engine, with what Python workers do to themselves in Python."""
    return {**options.for_engine, "gpus": options.gpus(), "nested": options.nested}
