"""The processes of A3C's actors: each steps environments of its own and learns from them in C++."""

from __future__ import annotations

import pickle
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

import shoal.process
from shoal import _core, _learn
from shoal.atari.preprocessing import preprocessing_of
from shoal.ipc.pickling import PicklingError, dumps
from shoal.ipc.sharing import Parcel
from shoal.learn.environments import EnvOptions, factories_of
from shoal.process._importing import importing
from shoal.vector import worker
from shoal.vector.build import build_vec
from shoal.vector.factories import recipe_of
from shoal.vector.options import WorkerOptions
from shoal.vector.plan import Asked, worker_count
from shoal.vector.processes import shares, with_guessed_preload
from shoal.vector.vector_env import VectorEnv
from shoal.vector.wrappers import wrappers_of

__all__ = ["Actors", "run"]


class Setup(NamedTuple):
    """What an actor builds.

    Attributes:
        first, num_envs: its environments are first … first + num_envs - 1 of all.
    """

    env: Any
    first: int
    num_envs: int
    options: EnvOptions


class Actors:
    """Processes with `num_envs` environments between them.

    Attributes:
        handle: for the C++ trainer.
    """

    def __init__(
        self,
        env: Any,
        num_envs: int,
        options: EnvOptions,
        like: VectorEnv,
        *,
        num_workers: int | None,
        backend: str = "auto",
        context: str = "auto",
    ) -> None:
        """Starts the processes.

        Args:
            env, options: as `environments.build()` takes them.
            like: has the same spaces.
            num_workers: processes; by default one for each CPU that this process may use; at most one for each environment.

        Raises:
            ValueError: for a backend, which steps environments in some other place than an actor's own process.
        """
        if backend not in ("auto", "serial"):
            raise ValueError(
                f"backend={backend!r} is not for a3c, whose processes step their environments themselves: leave it out, and "
                "say how many processes by num_workers"
            )
        how = WorkerOptions()
        self._parcel = Parcel()  # held for as long as actors may be started
        env = factories_of(env, num_envs)
        counts = shares(num_envs, worker_count(num_workers, num_envs))
        packed = [
            self._pack(Setup(env[lo:hi] if isinstance(env, list) else env, lo, hi - lo, options), context)
            for lo, hi in pairwise(accumulate(counts, initial=0))
        ]
        atari = preprocessing_of(options.atari)
        recipe = recipe_of(env, num_envs, dict(options.env_kwargs or {}), wrappers_of(options.wrappers), atari)
        own = __name__ if recipe.native_id else worker.__name__  # the latter's zygote has the evaluation's workers, too

        def start(preload: Any) -> _learn.Actors:
            launcher = shoal.process.launcher(context, preload=[own, *preload], **how.for_launcher)
            payloads = launcher.pack([(run, setup) for setup in packed], name="env")
            return _learn.start_actors(launcher.handle, payloads, counts, like._engine, how.start_timeout)

        self.handle = with_guessed_preload(recipe, context, how, start)

    def _pack(self, setup: Setup, context: str) -> Any:
        """As bytes; as it is where it cannot be pickled but a forked process inherits it."""
        try:
            return dumps(setup, "env", parcel=self._parcel)
        except PicklingError:
            if context != "fork":
                raise
            return setup

    @property
    def pids(self) -> list[int]:
        return self.handle.pids

    def close(self) -> None:
        """Ends the processes. Idempotent."""
        self.handle.close()


def run(context: Any, packed: Any) -> None:
    """The life of an actor's process, until its learner ends it, or has ended."""
    _core.trace.open(context.name)
    if context.hide_gpu:
        _core.process.forbid_gpu()
    np.random.seed()  # processes forked from one would all draw the same numbers from NumPy's global generator
    _core.process.keep_freed_memory()
    with importing(f"{context.name} imported what it is to learn from"):
        setup: Setup = pickle.loads(packed) if isinstance(packed, bytes) else packed
    given = {"env": setup.env, "num_envs": setup.num_envs, "num_workers": 0, "copy": False, **vars(setup.options)}
    envs = build_vec(first_env=setup.first, **{**_NOT_GIVEN, **given})
    try:
        if context.hide_gpu:
            _core.process.check_gpu()
        received = context.recv_with_fds()
        if received is None:
            return  # the learner has gone, or has thought better of it
        order, (arena,) = received
        _learn.run_actor(envs._engine, order, arena)
    finally:
        envs.close()


_NOT_GIVEN = {
    **dict.fromkeys(field.name for field in fields(Asked)),
    "context": "auto",
    "backend": "auto",
    "autoreset_mode": "next_step",
    "on_fault": "raise",
    "episode_statistics": False,
}
