"""Starts the worker processes of a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import shoal.process
from shoal import _core
from shoal.errors import StartFailed
from shoal.process.pickling import PicklingError, dumps
from shoal.vector import worker
from shoal.vector.factories import Recipe
from shoal.vector.options import WorkerOptions

__all__ = ["start"]

_unfit_for_preload: set[str] = set()
"""Modules that cannot be imported in a zygote (they start threads, or they fail): workers import them themselves."""


def start(
    recipe: Recipe, num_workers: int, context: str, autoreset_mode: str, on_fault: str, options: WorkerOptions
) -> _core.VectorEnv:
    """Starts the workers and waits until every one has built its environments."""
    packed = _pack_factories(recipe.factories, context)
    counts = _shares(len(recipe.factories), num_workers)

    def start_with(preload: Sequence[str]) -> _core.VectorEnv:
        launcher = shoal.process.launcher(
            context,
            preload=[worker.__name__, *preload],
            threads=options.threads,
            hide_gpu=options.gpu == "none",
            env=options.env,
            start_timeout=options.start_timeout,
            allow_unsafe_fork=options.allow_unsafe_fork,
        )
        return _core.process_vector_env(
            launcher.handle,
            payloads=_payloads(launcher, packed, counts),
            counts=counts,
            autoreset_mode=autoreset_mode,
            restart=on_fault == "restart",
            start_timeout=options.start_timeout,
            pin_workers=options.pin_workers,
        )

    guessed = [name for name in recipe.preload if name not in _unfit_for_preload and name not in options.preload]
    if not guessed:
        return start_with(options.preload)
    try:
        return start_with([*options.preload, *guessed])
    except StartFailed:
        # Nobody asked for these modules to be preloaded: if that was it, it works without.
        engine = start_with(options.preload)
        _unfit_for_preload.update(guessed)
        return engine


def _shares(num_envs: int, num_workers: int) -> list[int]:
    """Environments of every worker, as even as can be; the earlier workers have one more."""
    each, more = divmod(num_envs, num_workers)
    return [each + (i < more) for i in range(num_workers)]


def _pack_factories(factories: Sequence[Callable[[], Any]], context: str) -> list[bytes | Callable[[], Any]]:
    """Every factory as bytes; as it is where it cannot be pickled but a forked worker inherits it."""
    same = all(factory is factories[0] for factory in factories)
    packed: dict[int, bytes | Callable[[], Any]] = {}
    for i, factory in enumerate(factories):
        if id(factory) in packed:
            continue
        try:
            packed[id(factory)] = dumps(factory, "env" if same else f"env[{i}]")
        except PicklingError:
            if context != "fork":
                raise
            packed[id(factory)] = factory
    return [packed[id(factory)] for factory in factories]


def _payloads(launcher: Any, packed: Sequence[bytes | Callable[[], Any]], counts: Sequence[int]) -> list[bytes]:
    payloads, lo = [], 0
    for count in counts:
        payloads.append(launcher.pack(worker.run, list(packed[lo : lo + count]), name="env"))
        lo += count
    return payloads
