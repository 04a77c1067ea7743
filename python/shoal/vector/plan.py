"""The arguments of `make_vec`, checked: what is to be built, and where it is to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from shoal.atari.preprocessing import AtariPreprocessing, preprocessing_of
from shoal.ipc.sharing import Parcel
from shoal.vector.episodes import episode_options
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.faults import ON_FAULT, FaultPolicy
from shoal.vector.options import WorkerOptions
from shoal.vector.pool import WorkerPool
from shoal.vector.preparation import config_of
from shoal.vector.seeding import Seeds, seeds_of
from shoal.vector.wrappers import Wrapper, wrappers_of

__all__ = ["Asked", "Batches", "Plan", "plan_of", "worker_count"]

BACKENDS = ("auto", "process", "thread", "serial")
CONTEXTS = ("auto", "fork", "forkserver", "spawn")
_AUTORESET = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


@dataclass(frozen=True)
class Asked:
    """The arguments of `make_vec`, as they were given."""

    env: Any
    num_envs: int | None
    num_workers: int | None
    context: str
    backend: str
    autoreset_mode: str | AutoresetMode
    env_kwargs: Mapping[str, Any] | None
    seed: Seeds
    copy: bool
    timeout: float | None
    on_fault: str | FaultPolicy
    setup: Callable[[], Any] | None
    config: Any
    episode_statistics: bool
    max_episode_steps: int | None
    frame_stack: int | None
    reward_clip: tuple[float, float] | None
    wrappers: Sequence[Wrapper] | None
    batch_size: int | None
    cohorts: int | None
    max_in_flight: int | None
    pool: WorkerPool | None
    worker: WorkerOptions | None
    atari: Any = None


class Batches(NamedTuple):
    """How environments that are stepped one by one come back; None in its place where all are stepped together."""

    batch_size: int | None
    cohorts: int | None
    max_in_flight: int | None
    pool: WorkerPool | None

    @property
    def whole(self) -> bool:
        """Whether recv() returns all environments, so that step() is Gymnasium's."""
        return self.batch_size is None and self.cohorts is None


@dataclass(frozen=True)
class Plan:
    """What is to be built.

    Attributes:
        recipe, num_envs: the environments.
        num_workers, backend, context: where they run; the backend is "process", "thread" or "serial".
        options: of the workers, where they are no pool's.
        faults: as FaultPolicy.settings() returns them.
        env_kwargs: of a native environment; those of others are in their factories.
        episodes: as episode_options() returns them.
        seeds: for the first reset, one an environment.
        batches: None: all environments are stepped together.
        parcel: what workers and this process share, held for as long as the vector environment is.
    """

    recipe: Recipe
    num_envs: int
    num_workers: int
    backend: str
    context: str
    options: WorkerOptions
    autoreset_mode: AutoresetMode
    faults: dict[str, Any]
    env_kwargs: dict[str, Any]
    episodes: dict[str, Any]
    config: Any
    setup: Callable[[], Any] | None
    seed: Seeds
    seeds: Sequence[int | None] | None
    copy: bool
    timeout: float | None
    batches: Batches | None
    parcel: Parcel

    @property
    def mode(self) -> str:
        """The autoreset mode, as the engine calls it."""
        return self.autoreset_mode.name.lower()

    @property
    def pool(self) -> WorkerPool | None:
        return None if self.batches is None else self.batches.pool

    @property
    def worker_options(self) -> WorkerOptions:
        """Of the workers that step the environments, be they a pool's."""
        return self.options if self.pool is None else self.pool.options

    @property
    def snapshot_options(self) -> dict[str, Any]:
        """What environments must share to go on from each other's states, beside their classes and spaces."""
        native = {"env": self.recipe.native_id} if self.recipe.native_id else {}
        return native | {
            "autoreset_mode": self.mode,
            "episode_statistics": bool(self.episodes.get("statistics")),
            "max_episode_steps": self.episodes.get("max_episode_steps", self.env_kwargs.get("max_episode_steps")),
            "frame_stack": self.episodes.get("frame_stack"),
            "reward_clip": self.episodes.get("reward_clip"),
        }

    def async_options(self, workers: dict[str, Any]) -> dict[str, Any]:
        """For an engine that steps environments one by one; `workers` as WorkerOptions.for_engine is."""
        assert self.batches is not None
        return {
            "batch_size": self.batches.batch_size,
            "cohorts": self.batches.cohorts,
            "max_in_flight": self.batches.max_in_flight,
            "faults": self.faults,
            "autoreset_mode": self.mode,
            "workers": workers,
        }


def plan_of(asked: Asked) -> Plan:
    """Refuses what cannot be built, before any process starts.

    Raises:
        TypeError, ValueError: as make_vec says.
    """
    options = asked.worker if asked.worker is not None else WorkerOptions()
    _check_types(asked)
    mode = _autoreset_mode(asked.autoreset_mode)
    _one_of("context", asked.context, CONTEXTS)
    _one_of("backend", asked.backend, BACKENDS)
    policy = _policy(asked.on_fault)
    atari = preprocessing_of(asked.atari)
    env_kwargs, episodes = _kwargs_and_episodes(asked, atari)
    if atari is not None and asked.frame_stack is not None:
        atari = replace(atari, frame_stack=asked.frame_stack)
    recipe = recipe_of(asked.env, asked.num_envs, env_kwargs, wrappers_of(asked.wrappers), atari)
    num_envs = len(recipe.factories) or (1 if asked.num_envs is None else asked.num_envs)
    seeds = seeds_of(asked.seed, num_envs)
    workers = worker_count(asked.num_workers, num_envs)
    batches = _batches(asked, num_envs)
    backend = asked.backend
    if asked.pool is not None:
        _check_pool(asked)
        backend, workers = "process", min(num_envs, asked.pool.num_workers)
    for_processes = _for_processes(asked.context, asked.timeout, options)
    backend = _backend(backend, recipe, num_envs, asked.num_workers, policy, for_processes)
    if recipe.native_id:
        _refuse_for_native(asked, options)
    # Of a pool those that its workers were started with.
    of_workers = options if asked.pool is None else asked.pool.options
    config = config_of(asked.config, of_workers.config)
    faults = policy.settings(of_workers.start_timeout)
    return Plan(
        recipe=recipe,
        num_envs=num_envs,
        num_workers=workers,
        backend=backend,
        context=asked.context,
        options=options,
        autoreset_mode=mode,
        faults=faults,
        env_kwargs=env_kwargs,
        episodes=episodes,
        config=config,
        setup=asked.setup,
        seed=asked.seed,
        seeds=seeds.values or seeds.large,
        copy=asked.copy,
        timeout=asked.timeout,
        batches=batches,
        parcel=Parcel(),
    )


def _check_types(asked: Asked) -> None:
    if asked.env_kwargs is not None and not isinstance(asked.env_kwargs, Mapping):
        raise TypeError(f"make_vec(env_kwargs=…) takes a dict of keyword arguments, got {asked.env_kwargs!r}")
    if not isinstance(asked.copy, bool):
        raise TypeError(f"make_vec(copy=…) takes True or False, got {asked.copy!r}")
    timeout: Any = asked.timeout
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(f"make_vec(timeout=…) takes seconds, or None to wait for ever, got {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"make_vec(timeout=…) takes 0 or more seconds, got {timeout!r}")


def _kwargs_and_episodes(asked: Asked, atari: AtariPreprocessing | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of each environment, and of what the engine does around it. A time limit of an id is of the former: it
    takes the place of the id's own. A preprocessed game stacks its pictures itself."""
    kwargs = dict(asked.env_kwargs or {})
    limit = asked.max_episode_steps
    if limit is not None and isinstance(asked.env, str | EnvSpec):
        if "max_episode_steps" in kwargs:
            raise ValueError("make_vec() got max_episode_steps twice: leave it out of env_kwargs")
        kwargs |= episode_options(False, limit, None, None)
        limit = None
    clip = asked.reward_clip
    if atari is None:
        return kwargs, episode_options(asked.episode_statistics, limit, asked.frame_stack, clip)
    if clip is None and atari.clip_reward:
        clip = (-1.0, 1.0)  # a game's rewards are whole numbers: this is their sign
    return kwargs, episode_options(asked.episode_statistics, limit, None, clip)


def _batches(asked: Asked, num_envs: int) -> Batches | None:
    batch_size, cohorts, max_in_flight, pool = asked.batch_size, asked.cohorts, asked.max_in_flight, asked.pool
    named = {"batch_size": batch_size, "cohorts": cohorts, "max_in_flight": max_in_flight}
    for name, value in named.items():
        if value is None:
            continue
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"make_vec({name}=…) takes an int, got {value!r}")
        if not 1 <= value <= num_envs:
            raise ValueError(f"make_vec({name}=…) takes 1 to num_envs={num_envs}, got {value}")
    if pool is not None and not isinstance(pool, WorkerPool):
        raise TypeError(f"make_vec(pool=…) takes a shoal.WorkerPool, got {pool!r}")
    if cohorts is not None and num_envs % cohorts:
        raise ValueError(
            f"make_vec(cohorts={cohorts}) must divide num_envs={num_envs}, so that all cohorts are of one size"
        )
    if cohorts is not None and batch_size is not None and batch_size * cohorts != num_envs:
        raise ValueError(
            f"make_vec(): {cohorts} cohorts of {num_envs} environments have {num_envs // cohorts} each, but "
            f"batch_size={batch_size}; leave one of them out"
        )
    if max_in_flight is not None and batch_size is None and cohorts is None:
        raise ValueError("make_vec(max_in_flight=…) is for environments with batch_size or cohorts; give one of them")
    if batch_size is None and cohorts is None and pool is None:
        return None
    return Batches(batch_size, cohorts, max_in_flight, pool)


def _check_pool(asked: Asked) -> None:
    """The pool's workers have started: nothing can be said of how they do."""
    for name, value in (("num_workers", asked.num_workers), ("worker", asked.worker)):
        if value is not None:
            raise ValueError(
                f"make_vec({name}=…) says how workers start, but those of pool= have; give it to WorkerPool"
            )
    if asked.backend not in ("auto", "process") or asked.context != "auto":
        raise ValueError(
            "make_vec(pool=…): the pool's workers are processes that have started; leave backend and context out"
        )
    assert asked.pool is not None
    asked.pool._check_maker()
    if asked.pool.closed:
        raise RuntimeError("make_vec(pool=…): this pool is closed; make a new one")


def _refuse_for_native(asked: Asked, options: WorkerOptions) -> None:
    given = {
        "make_vec(setup=…)": asked.setup,
        "make_vec(config=…)": config_of(asked.config, options.config),
        "WorkerOptions(models=…)": options.models,
        "WorkerOptions(preload=…)": options.preload or None,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is for Python environments: native ones run no Python in their workers, so that nothing there would "
                "see it. Tell them what they need by env_kwargs=…, by the options of reset(), or by environment variables, "
                "which workers inherit and WorkerOptions(env=…) sets"
            )
    for name in ("episode_statistics", "frame_stack", "reward_clip"):
        if name in (asked.env_kwargs or {}):
            raise ValueError(
                f"make_vec(env_kwargs={{{name!r}: …}}): the engine does that around every environment, which has no such "
                f"argument; say make_vec({name}=…)"
            )


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
                f"on_fault={policy.on_fault!r} and deadlines need worker processes, which can be ended and started anew; "
                f"make_vec({_here(backend, num_workers)}) has none. {_to_have_workers(backend, num_workers)}"
            )
        return "process"
    if num_workers == 0 and backend not in ("auto", "serial"):
        raise ValueError(
            f"make_vec(num_workers=0) means no workers, which backend={backend!r} cannot do: leave backend out, or give "
            "num_workers=1 or more"
        )
    if backend == "thread" and not recipe.native_id:
        raise ValueError(
            'make_vec(backend="thread") steps native environments ("shoal/…") only: Python environments in threads would '
            'wait for each other. Take backend="process" or "serial".'
        )
    if for_processes and (backend in ("serial", "thread") or num_workers == 0):
        raise ValueError(
            f"make_vec({_here(backend, num_workers)}) steps the environments in this process, without worker processes, where "
            f"{' and '.join(for_processes)} would change nothing: leave {'it' if len(for_processes) == 1 else 'them'} out. "
            f"{_to_have_workers(backend, num_workers)}"
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


def _here(backend: str, num_workers: int | None) -> str:
    """The argument that says that there are no worker processes."""
    return "num_workers=0" if num_workers == 0 else f"backend={backend!r}"


def _to_have_workers(backend: str, num_workers: int | None) -> str:
    """What to say instead, to have some."""
    given = ["num_workers=1 or more"] if num_workers == 0 else []
    given += ['backend="process"'] if backend in ("serial", "thread") else []
    return f"For worker processes give {' and '.join(given)}"


def _needs_processes(policy: FaultPolicy) -> bool:
    return policy.on_fault != "raise" or policy.step_timeout is not None or policy.reset_timeout is not None


def worker_count(num_workers: int | None, count: int) -> int:
    """How many workers step `count` environments where `num_workers` is asked for; by default one a CPU."""
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
