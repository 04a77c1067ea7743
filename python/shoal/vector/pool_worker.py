"""A worker of a pool: it builds and serves the environments of every vector environment that is opened in it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from typing import Any

from shoal import _core
from shoal.identity import this_worker
from shoal.process import _settings, _worker
from shoal.process._importing import importing
from shoal.process._randomness import reseed
from shoal.vector.preparation import Preparation, become_as_asked
from shoal.vector.worker import EnvGroup, build_group

__all__ = ["build", "run"]


def run(context: Any, gpus: Sequence[str], nested: bool) -> None:
    """Its life, until the pool closes it; `gpus` and `nested` as in Preparation."""
    import numpy.random  # noqa: F401  # which is to be seeded, too

    become_as_asked(gpus, nested)
    reseed()
    _core.run_pool_worker(context, functools.partial(_open, context))


def _open(context: Any, payload: bytes, first: int) -> tuple[list[Any], EnvGroup, bool, bool]:
    """The environments of one session, and PyStepper's options; `payload` as Launcher.pack() makes it."""
    this_worker.introduce(_core.process.this_worker())
    settings, call = pickle.loads(payload)
    _settings.apply(settings)
    with importing(f"{context.name} imported what it is to build"):
        target, arguments = _worker.inherited[call] if isinstance(call, int) else pickle.loads(call)
    group = target(context, first, *arguments)
    return group.envs, group, True, False


def build(
    context: Any, first: int, packed: list[Any], preparation: Preparation, episode_options: dict[str, Any]
) -> EnvGroup:
    return build_group(context, first, packed, preparation, episode_options)
