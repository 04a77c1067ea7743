"""Where the time of an environment's step goes: a short run of it, traced and added up."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shoal.trace import Breakdown, Listener, breakdown, family

if TYPE_CHECKING:
    from shoal.learn.trainer import Trainer

__all__ = ["Explained", "explain"]

_WARM_UP = 0.3
"""Seconds of stepping before anything counts."""

_LEAST_STEPS = 8
"""Of each environment in a rollout: so few that slow environments make one in seconds. What a step takes of each part is the same
as in longer ones, as long as a rollout fills a minibatch."""

_ENDLESS = 2**60


class Explained(NamedTuple):
    """What was run, and where its time went."""

    program: str
    breakdown: Breakdown


def explain(
    env: str, num_envs: int, num_workers: int | None, seconds: float, tell: Callable[[str], None] = lambda _: None
) -> Explained:
    """Trains on an environment for so long, and until an iteration ends, with PPO's defaults for it but for shorter rollouts; steps
    it with actions that stay the same where it cannot be trained on.

    Args:
        tell: is called with a line that says what is waited for.

    Raises:
        ValueError: there is no such environment.
        Exception: what made the environment fail.
    """
    run = _training(env, num_envs, num_workers, seconds, tell)
    return run if run is not None else _stepping(env, num_envs, num_workers, seconds)


def _family() -> set[int]:
    return family(os.getpid())


def _training(
    env: str, num_envs: int, num_workers: int | None, seconds: float, tell: Callable[[str], None]
) -> Explained | None:
    """None: no policy fits its spaces."""
    from shoal.errors import Error
    from shoal.learn.trainer import Trainer

    num_steps = _steps_of_a_rollout(env, num_envs)
    with tempfile.TemporaryDirectory(prefix="shoal-explain-") as folder:
        try:
            trainer = Trainer(
                env,
                num_envs=num_envs,
                num_workers=num_workers,
                num_steps=num_steps,
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
            tell(
                f"{env}: trains for an iteration of {num_envs} environments x {num_steps} steps, and then for {seconds:g} s and to "
                "the end of another one; fewer --num-envs make them shorter"
            )
            trainer.start()
            trainer.wait(_WARM_UP)
            _end_iteration(trainer, time.sleep)
            listener = Listener(_family)
            listener.listen(seconds)
            _end_iteration(trainer, listener.listen)  # so that an update is in it beside its rollout
            spans = listener.stop()
            trainer.wait(0)  # raises what made the run fail
            seen = breakdown(spans, os.getpid())
    return Explained(f"training with {trainer.config['algorithm']}", seen)


def _steps_of_a_rollout(env: str, num_envs: int) -> int:
    """Not more than PPO's preset has for this environment."""
    from shoal.learn.config import preset_for
    from shoal.runs import preset

    config = preset(preset_for(env))
    most, batch_size = int(config["num_steps"]), int(config["batch_size"])
    return min(most, max(_LEAST_STEPS, math.ceil(batch_size / num_envs)))


def _end_iteration(trainer: Trainer, pause: Callable[[float], object]) -> None:
    """Waits for the end of the iteration under way, and raises what makes the run fail; no longer than until `pause` gives a true value."""
    iteration = trainer.status()["iteration"]
    while trainer.status()["iteration"] == iteration and not trainer.wait(0) and not pause(0.01):
        pass


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
