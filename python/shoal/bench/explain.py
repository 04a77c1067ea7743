"""Where the time of an environment's step goes: a short run of it, traced and added up."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shoal.trace import Breakdown, Listener, breakdown, family

__all__ = ["Explained", "explain"]

_WARM_UP = 0.3
"""Seconds of stepping before anything counts."""

_ENDLESS = 2**60


class Explained(NamedTuple):
    """What was run, and where its time went."""

    program: str
    breakdown: Breakdown


def explain(env: str, num_envs: int, num_workers: int | None, seconds: float) -> Explained:
    """Trains on an environment for so long, with PPO's defaults for it; steps it with random actions where it cannot be trained on.

    Raises:
        ValueError: there is no such environment, or the trace shows no step: more `seconds` are needed.
    """
    run = _training(env, num_envs, num_workers, seconds)
    return run if run is not None else _stepping(env, num_envs, num_workers, seconds)


def _family() -> set[int]:
    return family(os.getpid())


def _training(env: str, num_envs: int, num_workers: int | None, seconds: float) -> Explained | None:
    """None: no policy fits its spaces."""
    from shoal.errors import Error
    from shoal.learn.trainer import Trainer

    with tempfile.TemporaryDirectory(prefix="shoal-explain-") as folder:
        try:
            trainer = Trainer(
                env,
                num_envs=num_envs,
                num_workers=num_workers,
                run_dir=Path(folder) / "run",
                total_steps=_ENDLESS,
                eval_every=0,
                eval_envs=1,
                final_episodes=0,
                target_return=None,
            )
        except (Error, ValueError, TypeError):
            return None
        with trainer:
            trainer.start()
            _until(lambda: trainer.status()["iteration"] >= 1 or trainer.wait(0))
            trainer.wait(_WARM_UP)
            listener = Listener(_family)
            listener.listen(seconds)
            seen = breakdown(listener.stop(), os.getpid())
    return Explained(f"training with {trainer.config['algorithm']}", seen)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def _stepping(env: str, num_envs: int, num_workers: int | None, seconds: float) -> Explained:
    from shoal.vector.make import make_vec

    with make_vec(env, num_envs, num_workers=num_workers) as envs:
        envs.reset(seed=0)
        actions = envs.action_space.sample()

        def step(for_seconds: float) -> None:
            end = time.monotonic() + for_seconds
            while time.monotonic() < end:
                envs.step(actions)

        step(_WARM_UP)
        listener = Listener(_family)
        listener.listen_while(lambda: step(seconds))
        seen = breakdown(listener.stop(), os.getpid())
    return Explained("stepping with actions that stay the same", seen)
