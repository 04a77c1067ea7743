"""From the arguments of `make_vec`, checked, to a running vector environment."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from shoal import _core
from shoal.errors import SpacesDiffer
from shoal.process.sharing import Parcel
from shoal.vector import serial
from shoal.vector.episodes import episode_options, native_arguments
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.faults import ON_FAULT, FaultPolicy
from shoal.vector.options import WorkerOptions
from shoal.vector.preparation import config_of, prepare
from shoal.vector.seeding import Seeds, seeds_of
from shoal.vector.vector_env import VectorEnv
from shoal.vector.wrappers import wrappers_of

if TYPE_CHECKING:
    from shoal.vector.make_async import AsyncChoice
    from shoal.vector.pool import WorkerPool
    from shoal.vector.wrappers import Wrapper

__all__ = ["build_vec"]

BACKENDS = ("auto", "process", "thread", "serial")
CONTEXTS = ("auto", "fork", "forkserver", "spawn")
_AUTORESET = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def build_vec(
    env: str | Callable[..., Any] | Sequence[Any] | Any,
    num_envs: int | None,
    *,
    num_workers: int | None,
    context: str,
    backend: str,
    autoreset_mode: str | AutoresetMode,
    env_kwargs: Mapping[str, Any] | None,
    seed: Seeds,
    copy: bool,
    timeout: float | None,
    on_fault: str | FaultPolicy,
    setup: Callable[[], Any] | None,
    config: Any,
    episode_statistics: bool,
    max_episode_steps: int | None,
    frame_stack: int | None,
    reward_clip: tuple[float, float] | None,
    wrappers: Sequence[Wrapper] | None,
    batch_size: int | None,
    cohorts: int | None,
    max_in_flight: int | None,
    pool: WorkerPool | None,
    worker: WorkerOptions | None,
) -> VectorEnv:
    """`shoal.make_vec`, whose arguments these are."""
    options = worker if worker is not None else WorkerOptions()
    if env_kwargs is not None and not isinstance(env_kwargs, Mapping):
        raise TypeError(f"make_vec(env_kwargs=…) takes a dict of keyword arguments, got {env_kwargs!r}")
    if not isinstance(copy, bool):
        raise TypeError(f"make_vec(copy=…) takes True or False, got {copy!r}")
    _check_timeout(timeout)
    kwargs = dict(env_kwargs or {})
    mode = _autoreset_mode(autoreset_mode)
    _one_of("context", context, CONTEXTS)
    _one_of("backend", backend, BACKENDS)
    policy = _policy(on_fault)
    if max_episode_steps is not None and isinstance(env, str | EnvSpec):
        if "max_episode_steps" in kwargs:
            raise ValueError("make_vec() got max_episode_steps twice: leave it out of env_kwargs")
        kwargs |= episode_options(False, max_episode_steps, None, None)
        max_episode_steps = None
    episodes = episode_options(episode_statistics, max_episode_steps, frame_stack, reward_clip)
    recipe = recipe_of(env, num_envs, kwargs, wrappers_of(wrappers))
    count = len(recipe.factories) or (1 if num_envs is None else num_envs)
    seeds = seeds_of(seed, count)
    first_seeds = seeds.values or seeds.large
    config = config_of(config, options.config)
    workers = _num_workers(num_workers, count)
    choice = _async_choice(batch_size, cohorts, max_in_flight, pool, count)
    if pool is not None:
        _refuse_with_pool(num_workers=num_workers, worker=worker)
        if backend not in ("auto", "process") or context != "auto":
            raise ValueError(
                "make_vec(pool=…): the pool's workers are processes that have started; leave backend and context out"
            )
        backend, workers = "process", min(count, pool.num_workers)
    chosen = _backend(backend, recipe, count, num_workers, policy, _for_processes(context, timeout, options))
    faults = policy.settings(options.start_timeout)
    common: dict[str, Any] = {"autoreset_mode": mode, "copy": copy, "timeout": timeout, "seed": seed}
    common["episode_statistics"] = bool(episode_statistics)
    common["parcel"] = parcel = Parcel()
    if recipe.native_id:
        _refuse_for_native(
            {
                "make_vec(setup=…)": setup,
                "make_vec(config=…)": config,
                "WorkerOptions(models=…)": options.models,
                "WorkerOptions(preload=…)": options.preload or None,
            }
        )
    if choice is not None:
        from shoal.vector.make_async import make_async

        return make_async(
            choice,
            recipe,
            count,
            workers,
            chosen,
            context,
            options,
            faults,
            kwargs,
            episodes,
            config,
            setup,
            first_seeds,
            lambda engine: _native_description(engine, recipe.native_id, kwargs),
            common,
        )
    if recipe.native_id:
        board = _core.process.Board.create(options.shared_bytes)
        arguments = kwargs | native_arguments(episodes)
        engine = _native_engine(
            recipe.native_id, count, workers, chosen, context, mode, faults, arguments, options, board
        )
        description = _native_description(engine, recipe.native_id, kwargs)
        return VectorEnv(engine, description, native=True, board=board, **common)
    if chosen == "serial":
        engine, group, board = serial.start(
            recipe, mode.name.lower(), options, config=config, setup=setup, seeds=first_seeds, episode_options=episodes
        )
        return VectorEnv(engine, group.description(), group=group, board=board, **common)
    from shoal.vector.processes import start

    preparation = prepare(config, setup, first_seeds, context, options, parcel)
    board = _core.process.Board.create(options.shared_bytes)
    engine = start(
        recipe,
        workers,
        context,
        mode.name.lower(),
        faults,
        copy,
        options,
        preparation,
        board,
        episodes,
        parcel=parcel,
    )
    return VectorEnv(engine, _described(engine), board=board, **common)


def _async_choice(
    batch_size: int | None, cohorts: int | None, max_in_flight: int | None, pool: Any, count: int
) -> AsyncChoice | None:
    if batch_size is None and cohorts is None and max_in_flight is None and pool is None:
        return None
    from shoal.vector.make_async import choice_of

    return choice_of(batch_size, cohorts, max_in_flight, pool, count)


def _refuse_with_pool(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"make_vec({name}=…) says how workers start, but those of pool= have; give it to WorkerPool"
            )


def _refuse_for_native(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"{name} is for Python environments: native ones run no Python in their workers, so that nothing there would "
                "see it. Tell them what they need by env_kwargs=…, by the options of reset(), or by environment variables, "
                "which workers inherit and WorkerOptions(env=…) sets"
            )


def _native_engine(
    native_id: str,
    count: int,
    workers: int,
    backend: str,
    context: str,
    mode: AutoresetMode,
    faults: dict[str, Any],
    kwargs: dict[str, Any],
    options: WorkerOptions,
    board: _core.process.Board,
) -> _core.VectorEnv:
    try:
        arguments = json.dumps(kwargs)
    except TypeError as error:
        raise TypeError(f"native environments take keyword arguments that JSON can hold: {error}") from None
    in_processes: dict[str, Any] = {}
    if backend == "process":
        from shoal.vector.native_processes import for_native_engine, native_launcher

        in_processes = {"launcher": native_launcher(context, options), "workers": for_native_engine(options)}
    return _core.native_vector_env(
        native_id,
        num_envs=count,
        num_workers=max(1, workers),
        backend=backend,
        autoreset_mode=mode.name.lower(),
        faults=faults,
        env_args=arguments,
        board=board,
        **in_processes,
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


def _autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    for name, value in _AUTORESET.items():
        if mode in (name, value.value):
            return value
    raise ValueError(f"make_vec(autoreset_mode=…) takes {_choices(_AUTORESET)}, got {mode!r}")


def _policy(on_fault: str | FaultPolicy) -> FaultPolicy:
    if isinstance(on_fault, FaultPolicy):
        return on_fault
    if on_fault not in ON_FAULT:
        raise ValueError(f"make_vec(on_fault=…) takes {_choices(ON_FAULT)}, or a shoal.FaultPolicy, got {on_fault!r}")
    return FaultPolicy(on_fault)


def _for_processes(context: str, timeout: float | None, options: WorkerOptions) -> list[str]:
    """What was asked for that only worker processes can honour."""
    named = {"context=…": context != "auto", "timeout=…": timeout is not None}
    return [name for name, given in named.items() if given] + options.for_processes()


def _backend(
    backend: str,
    recipe: Recipe,
    count: int,
    num_workers: int | None,
    policy: FaultPolicy,
    for_processes: Sequence[str],
) -> str:
    if _needs_processes(policy):
        if backend in ("serial", "thread") or num_workers == 0:
            raise ValueError(
                f"on_fault={policy.on_fault!r} and deadlines need worker processes, which can be ended and started anew: "
                'leave backend and num_workers out, or take backend="process"'
            )
        return "process"
    if num_workers == 0 and backend not in ("auto", "serial"):
        raise ValueError(f"make_vec(num_workers=0) means no workers, which backend={backend!r} cannot do")
    if backend == "thread" and not recipe.native_id:
        raise ValueError(
            'make_vec(backend="thread") steps native environments ("shoal/…") only: Python environments in threads would '
            'wait for each other. Take backend="process" or "serial".'
        )
    here = "num_workers=0" if num_workers == 0 else f"backend={backend!r}"
    if for_processes and (backend in ("serial", "thread") or num_workers == 0):
        raise ValueError(
            f"make_vec({here}) steps the environments in this process, where {' and '.join(for_processes)} would "
            'change nothing: leave it out, or take backend="process"'
        )
    if backend != "auto":
        return backend
    if for_processes:
        return "process"
    if num_workers == 0:
        return "serial"
    if recipe.native_id:
        return "thread"
    return "serial" if count == 1 and num_workers is None else "process"


def _needs_processes(policy: FaultPolicy) -> bool:
    return policy.on_fault != "raise" or policy.step_timeout is not None or policy.reset_timeout is not None


def _num_workers(num_workers: int | None, count: int) -> int:
    if num_workers is None:
        return min(count, len(os.sched_getaffinity(0)))
    if isinstance(num_workers, bool) or not hasattr(num_workers, "__index__"):
        raise TypeError(f"make_vec(num_workers=…) takes an int, got {num_workers!r}")
    if num_workers < 0:
        raise ValueError(f"make_vec(num_workers=…) takes 0 or more, got {num_workers}")
    return min(count, int(num_workers))


def _check_timeout(timeout: Any) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"make_vec(timeout=…) takes seconds, or None to wait for ever, got {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"make_vec(timeout=…) takes 0 or more seconds, got {timeout!r}")


def _one_of(argument: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"make_vec({argument}=…) takes {_choices(choices)}, got {value!r}")


def _choices(names: Any) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}"
