"""EnvPool's functions that make environments, over `shoal.make_vec`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from shoal import _core
from shoal.compat.envpool.atari import EnvPoolsGame, full_name, short_names
from shoal.compat.envpool.env_pool import EnvPool, EnvSpec
from shoal.vector import extras
from shoal.vector.factories import no_such_id
from shoal.vector.make import make_vec
from shoal.vector.options import WorkerOptions

__all__ = ["list_all_envs", "make", "make_dm", "make_gym", "make_gymnasium", "make_spec"]

_OWN = frozenset(inspect.signature(make_vec).parameters) - {
    *("env", "num_envs", "num_workers", "seed", "batch_size", "max_episode_steps", "unknown")
}
"""Arguments of make_vec that EnvPool has under no name."""

_PIXELS = "wrap what renders: wrappers=['gymnasium.wrappers:AddRenderObservation'] with render_mode='rgb_array'"

_REFUSED = {
    "num_workers": "say num_threads=…: worker processes, or threads of native environments",
    "env_seed": "give the list of seeds to seed=…",
    "base_path": "environments find their files themselves",
    "reward_threshold": "it belongs to the id: gymnasium.register(…, reward_threshold=…)",
    "stack_num": "say frame_stack=…",
    "from_pixels": _PIXELS,
    "render_width": _PIXELS,
    "render_height": _PIXELS,
    "render_camera_id": "give it as the argument that the environment has, such as camera_id=…",
}
"""What stands for each argument of EnvPool's that there is not."""

_GAMES = frozenset(inspect.signature(EnvPoolsGame).parameters) - {"env_id", "render_mode"}
"""Arguments of EnvPool's games."""

_PREPROCESSING = _GAMES - set("mode difficulty full_action_space repeat_action_probability max_episode_steps".split())
"""Those that games as Gymnasium has them have not."""

_NOT_OF_GAMES = {
    "frame_stack": "say stack_num=…",
    "atari": "it has EnvPool's preprocessing; make('ALE/…', atari=…) has others",
}

_FORCE = {"force_reset": True}
"""Options of what a program resets, for which a game between two lives begins anew."""


def make(
    task_id: str | Callable[..., Any],
    env_type: str,
    *,
    num_envs: int = 1,
    batch_size: int = 0,
    num_threads: int = 0,
    seed: int | Sequence[int] = 42,
    max_episode_steps: int | None = None,
    thread_affinity_offset: int = -1,
    max_num_players: int = 1,
    gym_reset_return_info: bool = True,
    **options: Any,
) -> EnvPool:
    """Builds `num_envs` environments.

    Args:
        task_id: what `shoal.make_vec` takes: an id of Gymnasium's registry ("CartPole-v1"), or a native one
            ("shoal/CartPole-v1"), which steps in threads as EnvPool's own do; also an environment class, or a function that
            returns an environment. "Pong-v5" and its like are Atari's games with EnvPool's preprocessing, and take its
            arguments: stack_num, frame_skip, noop_max, episodic_life, reward_clip=True, img_height, …. "ALE/Pong-v5", which
            EnvPool has not, is Gymnasium's: raw frames of 210 x 160 x 3.
        env_type: "gymnasium", or "gym", which means the same, as in EnvPool 1.
        batch_size: environments that recv() returns at a time, the first that are ready; 0 for all.
        num_threads: worker processes (threads, of native environments); 0 for one for each CPU that this process may use.
        seed: environment i is first reset with `seed + i`, or element i of a sequence.
        max_episode_steps: steps after which an episode is truncated, instead of the id's own limit.
        thread_affinity_offset: worker i is confined to CPU number `offset + i` of those that this process may use, from the
            first again after the last; -1 leaves them as `shoal.WorkerOptions(affinity=)` says.
        max_num_players: 1.
        gym_reset_return_info: True.
        **options: arguments of `shoal.make_vec` that EnvPool has not (on_fault, timeout, wrappers, frame_stack, worker, …);
            all others are keyword arguments of every environment, as render_mode is.

    Raises:
        ValueError: for an argument that has no meaning here; the message says what to write.
        gymnasium.error.NameNotFound: for an unknown task.
    """
    if env_type not in ("gym", "gymnasium"):
        fix = "dm_env's TimeSteps are not made here" if env_type == "dm" else "there is no such interface"
        raise ValueError(f"make(env_type={env_type!r}): {fix}; take env_type='gymnasium'")
    count, batch, threads = _counts(num_envs, batch_size, num_threads)
    if operator.index(max_num_players) != 1:
        raise ValueError(f"make(max_num_players={max_num_players}): each environment has one player; leave it out")
    if not gym_reset_return_info:
        raise ValueError(
            "make(gym_reset_return_info=False): reset() always returns infos, as in EnvPool 1; leave it out"
        )
    game = full_name(task_id) if isinstance(task_id, str) and not _is_known(task_id) else None
    _refuse(task_id, game, options)
    seeds = _seeds(seed)
    shown = operator.index(options.pop("render_env_id", 0))
    if isinstance(options.get("reward_clip"), bool):  # of a game, whose rewards are whole numbers
        options["reward_clip"] = (-1.0, 1.0) if options["reward_clip"] else None
    own = {name: options.pop(name) for name in sorted(_OWN & options.keys())}
    offset = operator.index(thread_affinity_offset)
    if offset >= 0:
        own["worker"] = _confined(own.get("worker"), offset)
    options = {**(own.pop("env_kwargs", None) or {}), **options}
    task, limit = task_id, max_episode_steps
    if game is not None:
        options = {**_defaults_of_games(), **options}
        options["max_episode_steps"] = options["max_episode_steps"] if limit is None else limit
        task, limit = functools.partial(EnvPoolsGame, game), None
        if own.get("pool") is None:
            own["worker"] = _with_emulator(own.get("worker"))
    try:
        vector_env = make_vec(
            task,
            count,
            num_workers=threads or None,
            batch_size=None if batch in (0, count) else batch,
            seed=seeds,
            max_episode_steps=limit,
            env_kwargs=options,
            **own,
        )
    except gymnasium.error.NameNotFound:
        if not isinstance(task, str) or ":" in task or _is_known(task):
            raise
        raise no_such_id(task, list_all_envs()) from None  # EnvPool's names among them
    spec = vector_env.spec
    config = {
        "num_envs": count,
        "batch_size": vector_env.batch_size,
        "num_threads": threads,
        "max_num_players": 1,
        "thread_affinity_offset": offset,
        "seed": seeds,
        "gym_reset_return_info": True,
        "max_episode_steps": options.get("max_episode_steps") or limit or getattr(spec, "max_episode_steps", None),
        "reward_threshold": getattr(spec, "reward_threshold", None),
        "render_env_id": shown,
    }
    name = task_id if isinstance(task_id, str) else getattr(task_id, "__name__", repr(task_id))
    return EnvPool(vector_env, name, {**options, **config}, None if game is None else _FORCE)


def make_gymnasium(task_id: str | Callable[..., Any], **options: Any) -> EnvPool:
    """`make(task_id, "gymnasium", **options)`."""
    return make(task_id, "gymnasium", **options)


def make_gym(task_id: str | Callable[..., Any], **options: Any) -> EnvPool:
    """`make(task_id, "gym", **options)`."""
    return make(task_id, "gym", **options)


def make_dm(task_id: str | Callable[..., Any], **options: Any) -> EnvPool:
    """`make(task_id, "dm", **options)`, which raises ValueError."""
    return make(task_id, "dm", **options)


def make_spec(task_id: str | Callable[..., Any], **options: Any) -> EnvSpec:
    """The `spec` of what `make(task_id, "gymnasium", **options)` returns. The environments are built for it, and closed."""
    with make(task_id, "gymnasium", **options) as pool:
        spec: EnvSpec = pool.spec
        return spec


def list_all_envs() -> list[str]:
    """Every id that `make` takes: those of Gymnasium's registry, the native ones, and EnvPool's names of Atari's games."""
    extras.provide()
    native = (known.id for known in _core.env.registered() if known.id not in gymnasium.registry)
    return [*gymnasium.registry, *native, *(name for name in short_names() if name not in gymnasium.registry)]


def _counts(num_envs: Any, batch_size: Any, num_threads: Any) -> tuple[int, int, int]:
    count, batch, threads = operator.index(num_envs), operator.index(batch_size), operator.index(num_threads)
    if count < 1:
        raise ValueError(f"make(num_envs={count}) takes 1 or more")
    if not 0 <= batch <= count:
        raise ValueError(f"make(batch_size={batch}) takes 1 to num_envs={count}, or 0 for all")
    if threads < 0:
        raise ValueError(f"make(num_threads={threads}) takes 1 or more, or 0 for one for each CPU")
    return count, batch, threads


def _seeds(seed: Any) -> Any:
    numbers = seed if isinstance(seed, int) or not hasattr(seed, "__len__") else [int(each) for each in seed]
    for each in numbers if isinstance(numbers, list) else [numbers]:
        if operator.index(each) < 0:
            raise ValueError(f"make(seed={seed!r}): seeds are 0 or more, as Gymnasium's")
    return numbers


def _is_known(task_id: str) -> bool:
    return task_id in gymnasium.registry or _core.env.is_registered(task_id)


def _refuse(task_id: Any, game: str | None, options: Mapping[str, Any]) -> None:
    for name in options:
        if game is not None and name in _GAMES:
            continue
        if name in _REFUSED:
            raise ValueError(f"make({name}=…): {_REFUSED[name]}")
        if name in _PREPROCESSING and isinstance(task_id, str) and task_id.startswith("ALE/"):
            raise ValueError(
                f"make({name}=…) is of EnvPool's preprocessing, which {task_id!r} is without: "
                f"make({task_id.removeprefix('ALE/')!r}, …) has it"
            )
    if game is not None:
        for name, fix in _NOT_OF_GAMES.items():
            if options.get(name) is not None:
                raise ValueError(f"make({task_id!r}, {name}=…): {fix}")
    elif isinstance(options.get("reward_clip"), bool):
        raise ValueError("make(reward_clip=…) takes the bounds here: reward_clip=(-1, 1), or leave it out for none")


def _defaults_of_games() -> dict[str, Any]:
    parameters = inspect.signature(EnvPoolsGame).parameters
    return {name: parameters[name].default for name in parameters if name in _GAMES}


def _with_emulator(worker: WorkerOptions | None) -> WorkerOptions:
    options = worker or WorkerOptions()
    return dataclasses.replace(options, preload=(*options.preload, EnvPoolsGame.__module__, "ale_py"))


def _confined(worker: WorkerOptions | None, offset: int) -> WorkerOptions:
    cpus = sorted(os.sched_getaffinity(0))
    first = offset % len(cpus)
    return dataclasses.replace(worker or WorkerOptions(), affinity=cpus[first:] + cpus[:first])
