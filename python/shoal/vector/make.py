"""`make_vec`. Gymnasium is imported by the call, while the process that workers are forked from starts beside it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from shoal import _core
from shoal.unknown_arguments import hint
from shoal.vector.options import WorkerOptions

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.vector.faults import FaultPolicy
    from shoal.vector.pool import WorkerPool
    from shoal.vector.seeding import Seeds
    from shoal.vector.vector_env import VectorEnv
    from shoal.vector.wrappers import Wrapper

__all__ = ["make_vec"]


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
    on_fault: str | FaultPolicy = "raise",
    setup: Callable[[], Any] | None = None,
    config: Any = None,
    episode_statistics: bool = False,
    max_episode_steps: int | None = None,
    frame_stack: int | None = None,
    reward_clip: tuple[float, float] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
    batch_size: int | None = None,
    cohorts: int | None = None,
    max_in_flight: int | None = None,
    pool: WorkerPool | None = None,
    worker: WorkerOptions | None = None,
    **unknown: NoReturn,
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
        autoreset_mode: "next_step", "same_step" or "disabled", or Gymnasium's AutoresetMode. With "disabled" a step steps
            environments, too, whose episode has ended and that the caller has not reset, as Gymnasium's AsyncVectorEnv does:
            what they return then is their own matter, and where it says again that the episode ends, `episode_statistics`
            tells of that episode again, a step longer.
        env_kwargs: keyword arguments of every environment.
        seed: for the first reset of each environment, where that reset is given none.
        copy: True gives observations that are the caller's own for as long as it holds them. Large ones of worker
            processes are lent, not copied: their memory is used again when the last view of it is gone. Writing into them
            is fine; only a later masked reset takes the rows that it leaves alone from there. False gives views that the
            next call overwrites.
        timeout: seconds that a reset or step may take before it raises TimeoutError. Needs worker processes, as `context`
            and most of WorkerOptions do: `backend="auto"` then takes them, others refuse.
        on_fault: "raise" raises an environment's exception, or `shoal.WorkerDied` when its worker process ends; "restart"
            ends the episodes as truncated, with `infos["fault"]`, and goes on with new environments; "drop" goes on
            without them. A `shoal.FaultPolicy` also sets deadlines, back-off and limits. All but "raise" need worker
            processes, which `backend="auto"` then takes.
        setup: called once in every worker before its environments are built, without arguments; lambdas and closures are
            fine. What it returns is `shoal.worker().context` there, and is closed after the environments if it has a close().
        config: modules, classes and module-level objects whose state, as it is now, the workers' own take over, in place,
            before setup and environments: `config=[settings, Config]`, or a mapping that names them (and any other
            values) for `shoal.worker().config`. See shoal.Snapshot for leaving parts out.
        episode_statistics: True adds return, length and seconds of the episodes that ended to the infos, as
            `gymnasium.wrappers.vector.RecordEpisodeStatistics` does, from the rewards before `reward_clip`. Those of an
            environment's own wrapper stay; another `info["episode"]` of its own is a ValueError when an episode ends.
        max_episode_steps: steps after which an episode is truncated. Of an id, instead of its own limit.
        frame_stack: observations are the last so many, oldest first along a new leading axis, as
            `gymnasium.wrappers.FrameStackObservation` has them; a reset fills all of them with its own.
        reward_clip: (low, high), bounds that rewards are clipped to.
        wrappers: put around every environment, the first one innermost: classes or functions that take an environment
            and return one, or their import paths, `"package.module:Name"` or `"package.module:Name(key=1, other='x')"`.
            Not for native environments.
        atari: an id of `ale_py` is preprocessed as this says: True for the usual way, the name of a library whose way it
            is ("gymnasium", "sb3", "cleanrl"), a `shoal.AtariPreprocessing`, or a dict of its switches. `frame_stack` and
            `reward_clip`, where given, take the place of its own, and `max_episode_steps` counts the steps of a game. None
            or False: the game as Gymnasium makes it.
        batch_size: `recv()` returns this many environments, the first that are ready, while the others are still
            stepped: see AsyncVectorEnv, which is then returned. By default all environments are stepped together.
        cohorts: instead: environments in this many groups of one size, which `recv()` returns one after the other, so that
            the policy computes for one while workers step another; deterministic.
        max_in_flight: `send()` refuses to have more environments out.
        pool: a `shoal.WorkerPool` whose workers step the environments, beside those of other vector environments.
        worker: how worker processes are set up.

    Raises:
        gymnasium.error.NameNotFound: for an unknown id; the message names the nearest.
        gymnasium.error.DependencyNotInstalled: for an id of Atari, MuJoCo or Box2D without its package, which it names.
        TypeError: for an argument that make_vec has not; for an environment where a factory is needed, and for a factory, setup or config that cannot be sent to a
            worker; the message names the part that is in the way.
        ValueError: for an argument that is not one of its choices; environments whose spaces differ.
    """
    arguments = locals()
    if arguments.pop("unknown"):
        raise _no_such_argument(*next(iter(unknown.items())))
    if worker is not None and not isinstance(worker, WorkerOptions):
        raise TypeError(f"make_vec(worker=…) takes shoal.WorkerOptions(…), got {worker!r}")
    if pool is None and num_workers != 0 and backend in ("auto", "process") and "gymnasium" not in sys.modules:
        several = num_workers is not None or num_envs not in (None, 1) or isinstance(env, list | tuple)
        if (several or backend == "process") and not (isinstance(env, str) and _core.env.is_registered(env)):
            _start_zygote_ahead(context, worker or WorkerOptions())
    from shoal.vector.build import build_vec

    return build_vec(**arguments)


_ELSEWHERE = {
    "vectorization_mode": (
        "gymnasium.make_vec()",
        "say backend='process' for \"async\", backend='serial' for \"sync\", or leave it out",
    ),
    "vector_kwargs": (
        "gymnasium.make_vec()",
        "what is in it are arguments of make_vec() itself (autoreset_mode, copy, context, …)",
    ),
    "shared_memory": ("Gymnasium's AsyncVectorEnv", "leave it out: observations cross in shared memory"),
    "start_method": (
        "Stable-Baselines3's SubprocVecEnv",
        "say context='forkserver', 'spawn' or 'fork', or leave it out",
    ),
    "vec_env_cls": (
        "Stable-Baselines3's make_vec_env()",
        "say backend='process' or 'serial', or leave it out; shoal.compat.sb3 has its VecEnv",
    ),
    "wrapper_class": ("Stable-Baselines3's make_vec_env()", "say wrappers=[…]"),
    "monitor_dir": ("Stable-Baselines3's make_vec_env()", "say episode_statistics=True"),
    "num_threads": ("EnvPool", "say num_workers"),
    "wait_num": ("tianshou's BaseVectorEnv", "say batch_size"),
}
"""Arguments of others: who has them, and what stands for them here."""


def _no_such_argument(name: str, value: Any) -> TypeError:
    text = f"make_vec() has no argument {name!r}"
    if name in _ELSEWHERE:
        whose, instead = _ELSEWHERE[name]
        own = f"for an environment's own, env_kwargs={{{name!r}: {value!r}}}"
        return TypeError(f"{text}, as {whose} has: {instead}; {own}")
    if name in {option.name for option in fields(WorkerOptions)}:
        return TypeError(
            f"{text}, but shoal.WorkerOptions has: worker=shoal.WorkerOptions({name}={value!r}); for an environment's own, "
            f"env_kwargs={{{name!r}: {value!r}}}"
        )
    if near := hint(name, inspect.signature(make_vec).parameters):
        return TypeError(text + near)
    return TypeError(f"{text}. What the environments take goes into env_kwargs: env_kwargs={{{name!r}: {value!r}}}")


def _start_zygote_ahead(context: str, options: WorkerOptions) -> None:
    """The zygote and this process take a tenth of a second each to import Gymnasium: side by side that is one."""
    from shoal.process._launcher import start_ahead

    start_ahead(context, "shoal.vector.worker", **options.for_launcher)
