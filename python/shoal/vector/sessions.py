"""Starts Python environments in the workers of a pool: of one that several share, or of one made for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from shoal import _core
from shoal.vector import pool_worker
from shoal.vector.plan import Plan
from shoal.vector.pool import WorkerPool
from shoal.vector.preparation import Preparation
from shoal.vector.processes import pack_factories, shares, with_guessed_preload

__all__ = ["start"]


def start(plan: Plan, preparation: Preparation) -> tuple[_core.VectorEnv, _core.process.SharedState]:
    """The engine, and what its environments share. The pool that plan names may have other sessions; without one, the
    engine has workers of its own."""
    if plan.pool is not None:
        payloads, counts = _packed(plan, plan.pool, preparation)
        return _open(plan, plan.pool, payloads, counts, owned=False), plan.pool.shared_state

    def start_with(preload: Sequence[str]) -> tuple[_core.VectorEnv, _core.process.SharedState]:
        pool = WorkerPool._private(plan.num_workers, plan.context, plan.options, preload)
        payloads, counts = _packed(plan, pool, preparation)
        pool._start()  # now: forked workers inherit what was packed
        return _open(plan, pool, payloads, counts, owned=True), pool.shared_state

    return with_guessed_preload(plan.recipe, plan.context, plan.options, start_with)


def _packed(plan: Plan, pool: WorkerPool, preparation: Preparation) -> tuple[list[bytes], list[int]]:
    """For each worker: what builds its environments, and how many these are."""
    packed = pack_factories(plan.recipe.factories, plan.context, plan.parcel, gpu=pool.options.gpu != "none")
    counts = shares(len(packed), pool.num_workers)
    calls = [
        (pool_worker.build, list(packed[lo:hi]), preparation.of(lo, hi), plan.episodes)
        for lo, hi in pairwise(accumulate(counts, initial=0))
    ]
    return [b"P" + payload for payload in pool.launcher.pack(calls, name="env")], counts


def _open(plan: Plan, pool: WorkerPool, payloads: list[bytes], counts: list[int], owned: bool) -> _core.VectorEnv:
    return pool.open(payloads, counts, plan.async_options(pool.options.for_engine), owned)
