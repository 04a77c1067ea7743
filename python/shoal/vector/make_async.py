"""`make_vec` with `batch_size`, `cohorts` or `pool`: checks what goes together, and builds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shoal import _core
from shoal.process.sharing import Parcel
from shoal.vector import pool_worker, serial
from shoal.vector.async_env import AsyncVectorEnv
from shoal.vector.build import _described
from shoal.vector.episodes import native_arguments
from shoal.vector.factories import Recipe
from shoal.vector.native_processes import for_native_engine, native_launcher
from shoal.vector.options import WorkerOptions
from shoal.vector.pool import WorkerPool
from shoal.vector.preparation import Preparation, prepare
from shoal.vector.processes import _pack_factories, _shares, with_guessed_preload

__all__ = ["AsyncChoice", "choice_of", "make_async"]


class AsyncChoice(NamedTuple):
    """What was asked for."""

    batch_size: int | None
    cohorts: int | None
    max_in_flight: int | None
    pool: WorkerPool | None

    def options(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "cohorts": self.cohorts, "max_in_flight": self.max_in_flight}


def choice_of(
    batch_size: int | None, cohorts: int | None, max_in_flight: int | None, pool: Any, num_envs: int
) -> AsyncChoice | None:
    """None where environments are stepped all together.

    Raises:
        TypeError, ValueError: for what cannot be, before anything starts.
    """
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
    return AsyncChoice(batch_size, cohorts, max_in_flight, pool)


def make_async(
    choice: AsyncChoice,
    recipe: Recipe,
    num_envs: int,
    num_workers: int,
    backend: str,
    context: str,
    options: WorkerOptions,
    faults: dict[str, Any],
    kwargs: dict[str, Any],
    episodes: dict[str, Any],
    config: Any,
    setup: Callable[[], Any] | None,
    seeds: Sequence[int | None] | None,
    describe_native: Callable[[_core.VectorEnv], dict[str, Any]],
    common: dict[str, Any],
) -> AsyncVectorEnv:
    """As make_vec() says; `faults` as FaultPolicy.settings() returns them."""
    whole = choice.batch_size is None and choice.cohorts is None
    chosen = options if choice.pool is None else choice.pool.options
    engine_options = {
        **choice.options(),
        "faults": faults,
        "autoreset_mode": common["autoreset_mode"].name.lower(),
        "workers": chosen.for_engine,
    }
    if choice.pool is not None and choice.pool.closed:
        raise RuntimeError("make_vec(pool=…): this pool is closed; make a new one")
    if recipe.native_id:
        return _native(
            choice,
            recipe,
            num_envs,
            num_workers,
            backend,
            context,
            kwargs,
            episodes,
            engine_options,
            describe_native,
            options,
            {"whole": whole, **common},
        )
    if backend == "serial":
        engine, group, board = serial.start(
            recipe,
            engine_options["autoreset_mode"],
            options,
            config=config,
            setup=setup,
            seeds=seeds,
            episode_options=episodes,
            make=lambda envs, group: _core.async_serial_vector_env(envs, group, engine_options),
        )
        return AsyncVectorEnv(engine, group.description(), group=group, board=board, whole=whole, **common)
    pool = choice.pool
    parcel = common["parcel"]
    preparation = prepare(config, setup, seeds, context, chosen, parcel)
    if pool is not None:
        engine = _open(pool, recipe, preparation, episodes, engine_options, context, parcel, owned=False)
        board = pool.board
    else:
        engine, board = _open_privately(
            recipe, num_workers, context, options, preparation, episodes, engine_options, parcel
        )
    return AsyncVectorEnv(engine, _described(engine), whole=whole, board=board, **common)


def _open(
    pool: WorkerPool,
    recipe: Recipe,
    preparation: Preparation,
    episodes: dict[str, Any],
    options: dict[str, Any],
    context: str,
    parcel: Parcel,
    owned: bool,
    start: bool = False,
) -> _core.VectorEnv:
    packed = _pack_factories(recipe.factories, context, parcel, gpu=pool.options.gpu != "none")
    counts = _shares(len(packed), min(pool.num_workers, len(packed)))
    counts += [0] * (pool.num_workers - len(counts))
    calls: list[tuple[Any, ...]] = []
    lo = 0
    for count in counts:
        hi = lo + count
        calls.append((pool_worker.build, list(packed[lo:hi]), preparation.of(lo, hi), episodes))
        lo = hi
    payloads = [b"P" + payload for payload in pool.launcher.pack(calls, name="env")]
    if start:
        pool._start()
    return pool.open(payloads, counts, options, owned)


def _open_privately(
    recipe: Recipe,
    num_workers: int,
    context: str,
    options: WorkerOptions,
    preparation: Preparation,
    episodes: dict[str, Any],
    engine_options: dict[str, Any],
    parcel: Parcel,
) -> tuple[_core.VectorEnv, _core.process.Board]:
    def open_with(preload: Sequence[str]) -> tuple[_core.VectorEnv, _core.process.Board]:
        pool = WorkerPool._private(num_workers, context, options, preload)
        engine = _open(pool, recipe, preparation, episodes, engine_options, context, parcel, owned=True, start=True)
        return engine, pool.board

    return with_guessed_preload(recipe, context, options, open_with)


def _native(
    choice: AsyncChoice,
    recipe: Recipe,
    num_envs: int,
    num_workers: int,
    backend: str,
    context: str,
    kwargs: dict[str, Any],
    episodes: dict[str, Any],
    engine_options: dict[str, Any],
    describe: Callable[[_core.VectorEnv], dict[str, Any]],
    options: WorkerOptions,
    common: dict[str, Any],
) -> AsyncVectorEnv:
    try:
        arguments = json.dumps(kwargs | native_arguments(episodes))
    except TypeError as error:
        raise TypeError(f"native environments take keyword arguments that JSON can hold: {error}") from None
    if choice.pool is not None:
        board = choice.pool.board
        counts = _shares(num_envs, min(choice.pool.num_workers, num_envs))
        counts += [0] * (choice.pool.num_workers - len(counts))
        payload = _core.native_session(recipe.native_id, arguments)
        engine = choice.pool.open([payload] * len(counts), counts, engine_options, False)
    else:
        board = _core.process.Board.create(options.shared_bytes)
        launcher = None
        if backend == "process":
            launcher = native_launcher(context, options)
            engine_options["workers"] = for_native_engine(options)
        engine = _core.async_native_vector_env(
            recipe.native_id, num_envs, max(1, num_workers), backend, arguments, engine_options, board, launcher
        )
    return AsyncVectorEnv(engine, describe(engine), native=True, board=board, **common)
