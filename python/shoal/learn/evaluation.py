"""How good the policy of a run is: whole fresh episodes, no preference for short ones."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import WorkerDied
from shoal.learn import environments
from shoal.learn.config import read_run
from shoal.learn.policy import load_policy
from shoal.runs import run_of

if TYPE_CHECKING:
    from shoal.atari.preprocessing import AtariPreprocessing
    from shoal.vector.wrappers import Wrapper

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Returns are sums of the environment's own rewards, neither discounted nor normalised."""

    mean_return: float
    std_return: float  # over the episodes, of the population
    mean_length: float
    returns: list[float]  # by environment, then by time
    lengths: list[int]

    @property
    def episodes(self) -> int:
        return len(self.returns)


def evaluate(
    run_dir: str | Path,
    episodes: int = 100,
    seed: int = 0,
    *,
    which: str | None = None,
    deterministic: bool | None = None,
    policy: Any = None,
    device: Any = None,
    env: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    frame_stack: int | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    atari: bool | str | Mapping[str, Any] | AtariPreprocessing | None = None,
    num_envs: int | None = None,
    num_workers: int | None = None,
) -> Evaluation:
    """Runs whole episodes with the policy of a run.

    Every environment gives the same number of episodes (the first ones one more), and all of them count, so short
    episodes weigh no more than long ones. The same arguments give the same returns, whatever the number of workers. An episode
    of 200,000 steps is cut there and counts as it is, which is warned of.

    Args:
        run_dir: the directory of a run.
        episodes: how many.
        seed: environment i is seeded with seed + i.
        which: "best" or "last"; None: the best where there is one.
        deterministic: the most probable actions; False samples. None: the most probable ones, but of a torch module
            that has no mode().
        policy, device: as of `load_policy`.
        env: what to build, as in `train`; None: what the run was trained on.
        env_kwargs, max_episode_steps, frame_stack, wrappers: as in `train`; None: those of the run.
        atari: as in `train`; None: as the run was trained, with whole games and their own rewards.
        num_envs: how many environments share the episodes; None: one for each, at most 32, and at least as many as a list of
            factories has.
        num_workers: as in `shoal.make_vec`.

    Raises:
        ValueError: for less than one episode or more than 2**31 - 1, a seed that is not from 0 to 2**64 - 1, less episodes or environments than a list
            of factories has, and environments with other spaces than those that the policy was trained with; for what the run had and could not record, and is not given here: `env` or
            wrappers that no import path leads to, arguments that JSON cannot hold.
    """
    episodes, seed = _whole("episodes", episodes), _whole("seed", seed)
    if not 1 <= episodes < 2**31:
        raise ValueError(f"evaluate: episodes is {episodes}, it has to be a number from 1 to 2**31 - 1")
    if not 0 <= seed < 2**64:
        raise ValueError(f"evaluate: seed is {seed}, it has to be a number from 0 to 2**64 - 1")
    loaded = load_policy(run_dir, which, policy=policy, device=device)
    try:
        run = read_run(run_of(run_dir))
    except FileNotFoundError:  # a checkpoint that has left its run
        if env is None:
            raise
        run = {}
    env = environments.recorded_env(run, env)
    given = environments.EnvOptions(env_kwargs, max_episode_steps, frame_stack, wrappers=wrappers, atari=atari)
    options = given.for_evaluation_of(run)
    if num_envs is None:
        num_envs = max(min(episodes, 32), environments.listed(env))
    environments.require_all(env, episodes=episodes, num_envs=num_envs)
    envs = environments.build(env, num_envs, options, num_workers=num_workers)
    try:
        result = loaded.evaluate(envs, episodes, seed, deterministic)
    except WorkerDied as died:
        died.remedy = ""  # it takes no on_fault=
        raise
    finally:
        environments.close(envs)
    if told := environments.told_of_cuts(result["lengths"]):
        warnings.warn(told, RuntimeWarning, stacklevel=2)
    return Evaluation(**result)


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"evaluate: {name} is {value!r}, it has to be a whole number") from None
