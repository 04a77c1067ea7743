"""Starts the workers of environments that an adapter steps: one by one, or all together."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.ipc.sharing import Parcel
from shoal.vector import processes, sessions
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions
from shoal.vector.plan import Asked, plan_of
from shoal.vector.preparation import prepare
from shoal.vector.worker import EnvGroup

__all__ = ["preload_of", "start", "start_together"]

Envs = TypeVar("Envs")


def start(
    envs: Callable[..., Envs],
    factories: Sequence[Callable[[], Any]],
    preload: list[str],
    *,
    num_workers: int,
    context: str,
    faults: FaultPolicy,
    worker: WorkerOptions,
) -> Envs:
    """Waits until all environments are built. Nothing resets them by itself, and each is one of its own batches.

    Args:
        envs: the class of the result, called as an AsyncVectorEnv is.
        preload: modules that the workers need.

    Raises:
        TypeError: for functions that cannot be sent to a worker.
        what an environment raised while it was built.
    """
    asked = dict.fromkeys(field.name for field in dataclasses.fields(Asked))
    asked |= {
        "env": list(factories),
        "num_workers": num_workers,
        "context": context,
        "backend": "process",
        "autoreset_mode": "disabled",
        "copy": True,
        "on_fault": faults,
        "setup": None,
        "episode_statistics": False,
        "batch_size": 1,
        "worker": worker,
    }
    plan = plan_of(Asked(**asked))  # type: ignore[arg-type]  # its fields, by name
    plan = dataclasses.replace(plan, recipe=plan.recipe._replace(preload=preload))
    preparation = prepare(plan.config, plan.setup, plan.seeds, plan.context, plan.worker_options, plan.parcel)
    engine, shared_state = sessions.start(plan, preparation)
    try:
        return envs(
            engine,
            pickle.loads(engine.hello(0)),
            autoreset_mode=AutoresetMode.DISABLED,
            shared_state=shared_state,
            parcel=plan.parcel,
        )
    except BaseException:
        engine.close()
        raise


def start_together(
    envs: Callable[..., Envs],
    recipe: Recipe,
    num_workers: int,
    context: str,
    mode: AutoresetMode,
    faults: dict[str, Any],
    options: WorkerOptions,
    *,
    kind: type[EnvGroup],
    asks_for_fork: str,
    **more: Any,
) -> Envs:
    """Waits until all environments are built, which are stepped together, to the letter as the caller's library does.

    Args:
        envs: the class of the result, called as a VectorEnv is.
        context: "fork" gives way to "auto", with a warning that names the cause, where it would break.
        kind: of the workers' groups.
        asks_for_fork: the caller's class and argument, for that warning.
        more: arguments of shoal.vector.processes.start.

    Raises:
        TypeError: for functions that cannot be sent to a worker.
        what an environment raised while it was built.
    """
    shared_state = _core.process.SharedState.create(options.shared_bytes)
    parcel = Parcel()

    hazards = [] if context != "fork" or options.allow_unsafe_fork else _core.process.fork_hazards()
    if hazards:
        instead = asks_for_fork.replace("'fork'", "'forkserver'")
        text = (
            f"{asks_for_fork} starts its workers by a fork server: 'fork' is not safe in this process:\n  - "
            + "\n  - ".join(hazards)
            + f"\n{instead} does so without this warning; what forks all the same is WorkerOptions(allow_unsafe_fork=True)"
        )
        warnings.warn(text, stacklevel=4)
        context = "auto"
    engine = processes.start(
        recipe,
        num_workers,
        context,
        mode.name.lower(),
        faults,
        True,
        options,
        prepare(options.config, None, None, context, options, parcel),
        shared_state,
        parcel=parcel,
        exact=True,
        kind=kind,
        **more,
    )
    try:
        hello = pickle.loads(engine.hello(0))
        return envs(engine, hello, autoreset_mode=mode, shared_state=shared_state, exact=True, parcel=parcel)
    except BaseException:
        engine.close()
        raise


def preload_of(env_fns: Sequence[Callable[[], Any]], *modules: str) -> list[str]:
    """These modules, and those that the functions need."""
    names = list(modules)
    for fn in {id(fn): fn for fn in env_fns}.values():
        names += [name for name in recipe_of(fn, 1, {}).preload if name not in names]
    return names
