"""`make_vec`: from an environment's name, class or factory to a running vector environment."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.options import WorkerOptions
from shoal.vector.seeding import Seeds, seeds_of
from shoal.vector.vector_env import VectorEnv
from shoal.vector.worker import EnvGroup, build_envs

__all__ = ["make_vec"]

BACKENDS = ("auto", "process", "thread", "serial")
CONTEXTS = ("auto", "fork", "forkserver", "spawn")
ON_FAULT = ("raise", "restart")
_AUTORESET = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def make_vec(
    env: str | Callable[..., Any] | Sequence[Any] | Any,
    num_envs: int | None = None,
    *,
    num_workers: int | None = None,
    context: str = "auto",
    backend: str = "auto",
    autoreset_mode: str | AutoresetMode = "next_step",
    env_kwargs: Mapping[str, Any] | None = None,
    seed: Seeds = None,
    copy: bool = True,
    timeout: float | None = None,
    on_fault: str = "raise",
    worker: WorkerOptions | None = None,
) -> VectorEnv:
    """Builds `num_envs` environments and steps them together.

    Args:
        env: an id that `gymnasium.make` knows ("CartPole-v1", "module:Env-v0"), a native id ("shoal/CartPole-v1"), an
            environment class, a function that returns an environment, or a list of these, one for each environment.
            Lambdas, closures and what a notebook defines are fine.
        num_envs: how many; 1, or the length of the list.
        num_workers: worker processes (or threads, of native environments), at most one for each environment. By default
            one for each CPU that this process may use. 0 means no workers: `backend="serial"`.
        context: how worker processes start: "forkserver" from a fresh process that has imported what they need, "spawn",
            "fork", or "auto" (forkserver).
        backend: "process", "thread" (native environments only), "serial" (in this process), or "auto": threads for native
            environments, processes for several Python environments, serial for one.
        autoreset_mode: "next_step", "same_step" or "disabled", or Gymnasium's AutoresetMode.
        env_kwargs: keyword arguments of every environment.
        seed: for the first reset() that is given none.
        copy: False returns observations as views that the next call overwrites.
        timeout: seconds that a reset or step may take before it raises TimeoutError.
        on_fault: "raise" raises `shoal.WorkerDied` when a worker process dies; "restart" ends its environments' episodes
            as truncated, with `infos["fault"]`, and goes on with a new worker.
        worker: how worker processes are set up.

    Raises:
        gymnasium.error.NameNotFound: for an unknown id; the message names the nearest.
        TypeError: for an environment where a factory is needed, and for a factory that cannot be sent to a worker.
        ValueError: for an argument that is not one of its choices; environments whose spaces differ or have no arrays of
            fixed size.
    """
    options = worker if worker is not None else WorkerOptions()
    kwargs = dict(env_kwargs or {})
    mode = _autoreset_mode(autoreset_mode)
    _one_of("context", context, CONTEXTS)
    _one_of("backend", backend, BACKENDS)
    _one_of("on_fault", on_fault, ON_FAULT)
    recipe = recipe_of(env, num_envs, kwargs)
    count = len(recipe.factories) or (1 if num_envs is None else num_envs)
    seeds_of(seed, count)
    workers = _num_workers(num_workers, count)
    chosen = _backend(backend, recipe, count, num_workers)
    common: dict[str, Any] = {"autoreset_mode": mode, "copy": copy, "timeout": timeout, "seed": seed}
    if recipe.native_id:
        engine = _native_engine(recipe.native_id, count, workers, chosen, mode, on_fault, kwargs, options)
        return VectorEnv(engine, _native_description(engine, recipe.native_id, kwargs), native=True, **common)
    if chosen == "serial":
        return _serial(recipe, common)
    from shoal.vector.processes import start

    engine = start(recipe, workers, context, mode.name.lower(), on_fault, options)
    return VectorEnv(engine, _described(engine), **common)


def _serial(recipe: Recipe, common: dict[str, Any]) -> VectorEnv:
    envs = build_envs(recipe.factories, 0)
    group = EnvGroup(envs, 0)
    try:
        engine = _core.serial_vector_env(envs, group, common["autoreset_mode"].name.lower())
    except BaseException:
        group.close()
        raise
    return VectorEnv(engine, group.description(), group=group, **common)


def _native_engine(
    native_id: str,
    count: int,
    workers: int,
    backend: str,
    mode: AutoresetMode,
    on_fault: str,
    kwargs: dict[str, Any],
    options: WorkerOptions,
) -> _core.VectorEnv:
    try:
        arguments = json.dumps(kwargs)
    except TypeError as error:
        raise TypeError(f"native environments take keyword arguments that JSON can hold: {error}") from None
    return _core.native_vector_env(
        native_id,
        num_envs=count,
        num_workers=max(1, workers),
        backend=backend,
        autoreset_mode=mode.name.lower(),
        restart=on_fault == "restart",
        env_args=arguments,
        start_timeout=options.start_timeout,
        pin_workers=options.pin_workers,
    )


def _native_description(engine: _core.VectorEnv, native_id: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    known = _core.env.find(native_id)
    limit = kwargs.get("max_episode_steps", known.max_episode_steps) or None
    spec = EnvSpec(native_id, reward_threshold=known.reward_threshold, max_episode_steps=limit, kwargs=kwargs)
    return {
        "observation_space": engine.single_observation_space,
        "action_space": engine.single_action_space,
        "metadata": {},
        "render_mode": None,
        "spec": spec,
    }


def _described(engine: _core.VectorEnv) -> dict[str, Any]:
    return pickle.loads(engine.hello(0))


def _autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    for name, value in _AUTORESET.items():
        if mode in (name, value.value):
            return value
    raise ValueError(f"make_vec(autoreset_mode=…) takes {_choices(_AUTORESET)}, got {mode!r}")


def _backend(backend: str, recipe: Recipe, count: int, num_workers: int | None) -> str:
    if num_workers == 0 and backend not in ("auto", "serial"):
        raise ValueError(f"make_vec(num_workers=0) means no workers, which backend={backend!r} cannot do")
    if backend == "thread" and not recipe.native_id:
        raise ValueError(
            'make_vec(backend="thread") steps native environments ("shoal/…") only: Python environments in threads would '
            'wait for each other. Take backend="process" or "serial".'
        )
    if backend != "auto":
        return backend
    if num_workers == 0:
        return "serial"
    if recipe.native_id:
        return "thread"
    return "serial" if count == 1 and num_workers is None else "process"


def _num_workers(num_workers: int | None, count: int) -> int:
    if num_workers is None:
        return min(count, len(os.sched_getaffinity(0)))
    if isinstance(num_workers, bool) or not hasattr(num_workers, "__index__"):
        raise TypeError(f"make_vec(num_workers=…) takes an int, got {num_workers!r}")
    if num_workers < 0:
        raise ValueError(f"make_vec(num_workers=…) takes 0 or more, got {num_workers}")
    return min(count, int(num_workers))


def _one_of(argument: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"make_vec({argument}=…) takes {_choices(choices)}, got {value!r}")


def _choices(names: Any) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}"
