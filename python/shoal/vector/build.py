"""From the arguments of `make_vec` to a running vector environment."""

from __future__ import annotations

import pickle
from typing import Any

from shoal import _core
from shoal.errors import SpacesDiffer
from shoal.vector import native, processes, serial, sessions
from shoal.vector.async_env import AsyncVectorEnv
from shoal.vector.options import may_lose_rows
from shoal.vector.plan import Asked, Plan, plan_of
from shoal.vector.preparation import prepare
from shoal.vector.vector_env import VectorEnv
from shoal.vector.worker import EnvGroup

__all__ = ["build_vec"]


def build_vec(*, first_env: int = 0, **arguments: Any) -> VectorEnv:
    """`shoal.make_vec`, whose arguments these are.

    Args:
        first_env: environments of this process are these of more than there are here: what `shoal.worker().env_index` is
            for the first.
    """
    plan = plan_of(Asked(**arguments))
    if plan.recipe.native_id:
        engine, shared_state = native.start(plan)
        return _face(plan, engine, shared_state, native.description(engine, plan), native=True)
    if plan.backend == "serial":
        return _in_this_process(plan, first_env)
    preparation = prepare(plan.config, plan.setup, plan.seeds, plan.context, plan.worker_options, plan.parcel)
    if plan.batches is not None:
        engine, shared_state = sessions.start(plan, preparation)
    else:
        shared_state = _core.process.SharedState.create(plan.options.shared_bytes)
        engine = processes.start(
            plan.recipe,
            plan.num_workers,
            plan.context,
            plan.mode,
            plan.faults,
            plan.copy,
            plan.options,
            preparation,
            shared_state,
            plan.episodes,
            parcel=plan.parcel,
        )
    return _face(plan, engine, shared_state, _described(engine))


def _in_this_process(plan: Plan, first_env: int) -> VectorEnv:
    def one_by_one(envs: list[Any], group: EnvGroup) -> _core.VectorEnv:
        return _core.async_serial_vector_env(envs, group, plan.async_options(plan.options.for_engine))

    engine, group, shared_state = serial.start(
        plan.recipe,
        plan.mode,
        plan.options,
        config=plan.config,
        setup=plan.setup,
        seeds=plan.seeds,
        episode_options=plan.episodes,
        first_env=first_env,
        make=None if plan.batches is None else one_by_one,
    )
    return _face(plan, engine, shared_state, group.description(), group=group)


def _face(
    plan: Plan,
    engine: _core.VectorEnv,
    shared_state: _core.process.SharedState,
    description: dict[str, Any],
    **more: Any,
) -> VectorEnv:
    """What the caller gets."""
    workers = plan.options if plan.pool is None else plan.pool.options
    common: dict[str, Any] = {
        "autoreset_mode": plan.autoreset_mode,
        "copy": plan.copy,
        "timeout": plan.timeout,
        "seed": plan.seed,
        "episode_statistics": bool(plan.episodes.get("statistics")),
        "parcel": plan.parcel,
        "shared_state": shared_state,
        "marks_rows": may_lose_rows(plan.faults["on_fault"], workers),
        **more,
    }
    envs: VectorEnv
    if plan.batches is None:
        envs = VectorEnv(engine, description, **common)
    else:
        envs = AsyncVectorEnv(engine, description, whole=plan.batches.whole, **common)
    envs._snapshot_options = plan.snapshot_options
    return envs


def _described(engine: _core.VectorEnv) -> dict[str, Any]:
    """What the first worker says of its environments. The engine has compared all spaces but those that exist in Python
    only."""
    first: dict[str, Any] = pickle.loads(engine.hello(0))
    if not engine.has_objects:
        return first
    for worker in range(1, engine.num_workers):
        other = pickle.loads(engine.hello(worker))
        for which in ("observation_space", "action_space"):
            if not _core.same_space(first[which], other[which]):
                row = engine.stats()["workers"][worker]["first_env"]
                engine.close()
                raise SpacesDiffer(
                    f"all environments need the same {which}: environment 0 has {first[which]}, environment {row} has "
                    f"{other[which]}"
                )
    return first
