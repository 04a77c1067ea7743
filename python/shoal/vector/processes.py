"""Starts the worker processes of a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import shoal.process
from shoal import _core
from shoal.errors import StartFailed
from shoal.ipc.pickling import PicklingError, dumps
from shoal.ipc.sharing import Parcel
from shoal.vector import worker
from shoal.vector.factories import Recipe
from shoal.vector.options import WorkerOptions
from shoal.vector.preparation import Preparation
from shoal.vector.worker import EnvGroup

__all__ = ["pack_factories", "shares", "start", "with_guessed_preload"]

Started = TypeVar("Started")

_unfit_for_preload: set[str] = set()
"""Modules that cannot be imported in a zygote (they start threads, or they fail): workers import them themselves."""


def start(
    recipe: Recipe,
    num_workers: int,
    context: str,
    autoreset_mode: str,
    faults: dict[str, Any],
    lend_obs: bool,
    options: WorkerOptions,
    preparation: Preparation,
    shared_state: _core.process.SharedState,
    episode_options: Mapping[str, Any] | None = None,
    *,
    parcel: Parcel,
    same_observations: bool = True,
    exact: bool = False,
    kind: type[EnvGroup] = EnvGroup,
    imported_by: Callable[[bytes], list[str]] | None = None,
) -> _core.VectorEnv:
    """Starts the workers and waits until every one has built its environments.

    Args:
        episode_options: see shoal.vector.episodes.
        parcel: to be held for as long as the workers are, which may be started anew.
        same_observations: False lets the environments' observation spaces differ in all but dtypes and shapes.
        exact: to the letter as Gymnasium's own classes: final observations come as the environments returned them, and
            environments may be stepped that were never reset.
        kind: of the workers' groups.
        imported_by: modules that a worker will import when it unpickles this factory, worth preloading.
    """
    packed = pack_factories(recipe.factories, context, parcel, gpu=options.gpu != "none")
    counts = shares(len(recipe.factories), num_workers)
    if imported_by is not None:
        distinct = {factory for factory in packed if isinstance(factory, bytes)}
        modules = [module for factory in distinct for module in imported_by(factory)]
        recipe = recipe._replace(preload=list(dict.fromkeys([*recipe.preload, *modules])))

    def start_with(preload: Sequence[str]) -> _core.VectorEnv:
        launcher = shoal.process.launcher(
            context,
            preload=[worker.__name__, *preload],
            **options.for_launcher,
        )
        return _core.process_vector_env(
            launcher.handle,
            payloads=_payloads(launcher, packed, counts, preparation, episode_options, same_observations, exact, kind),
            counts=counts,
            autoreset_mode=autoreset_mode,
            faults=faults,
            workers=options.for_engine,
            lend_obs=lend_obs,
            shared_state=shared_state,
            step_before_reset=exact,
        )

    return with_guessed_preload(recipe, context, options, start_with)


def with_guessed_preload(
    recipe: Recipe, context: str, options: WorkerOptions, start: Callable[[Sequence[str]], Started]
) -> Started:
    """`start` with the modules to preload: those of the options, and those that the recipe's factories are from.

    Nobody asked for the latter: where no worker starts with them, `start` is called a second time, without. If that was
    it, they are not tried again.
    """
    preloadable = [] if context == "spawn" else recipe.preload  # nobody shares what a spawned worker imports
    guessed = [name for name in preloadable if name not in _unfit_for_preload and name not in options.preload]
    if not guessed:
        return start(options.preload)
    try:
        return start([*options.preload, *guessed])
    except StartFailed:
        started = start(options.preload)
        _unfit_for_preload.update(guessed)
        return started


def shares(num_envs: int, num_workers: int) -> list[int]:
    """Environments of every worker, as even as can be; the earlier workers have one more."""
    each, more = divmod(num_envs, num_workers)
    return [each + (i < more) for i in range(num_workers)]


def pack_factories(
    factories: Sequence[Callable[[], Any]], context: str, parcel: Parcel, *, gpu: bool
) -> list[bytes | Callable[[], Any]]:
    """Every factory as bytes; as it is where it cannot be pickled but a forked worker inherits it."""
    same = all(factory is factories[0] for factory in factories)
    packed: dict[int, bytes | Callable[[], Any]] = {}
    for i, factory in enumerate(factories):
        if id(factory) in packed:
            continue
        try:
            packed[id(factory)] = dumps(factory, "env" if same else f"env[{i}]", gpu=gpu, parcel=parcel)
        except PicklingError:
            if context != "fork":
                raise
            packed[id(factory)] = factory
    return [packed[id(factory)] for factory in factories]


def _payloads(
    launcher: Any,
    packed: Sequence[bytes | Callable[[], Any]],
    counts: Sequence[int],
    preparation: Preparation,
    *arguments: Any,
) -> list[bytes]:
    calls = [
        (worker.run, list(packed[lo:hi]), preparation.of(lo, hi), *arguments)
        for lo, hi in pairwise(accumulate(counts, initial=0))
    ]
    payloads: list[bytes] = launcher.pack(calls, name="env")
    return payloads
