"""Policies out of runs: observations in, actions out, in NumPy. No torch, no environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal import _learn
from shoal.learn.config import flag
from shoal.learn.spaces import first_of_episodes, leaves, space_from
from shoal.names import needs_torch
from shoal.reprs import never_raises
from shoal.runs import checkpoint_dir, is_of_module

if TYPE_CHECKING:
    from shoal.learn.modules.policy import ModulePolicy
    from shoal.vector.vector_env import VectorEnv

__all__ = ["Policy", "load_policy"]


def load_policy(
    run_dir: str | Path, which: str | None = None, *, policy: Any = None, device: Any = None
) -> Policy | ModulePolicy:
    """The policy of a run; of one that trained a torch module, a ModulePolicy, which has the same methods.

    Args:
        run_dir: the directory of a run, or of one checkpoint.
        which: "best" (of all evaluations) or "last"; None: the best where there is one.
        policy: of a torch module, as it was given to train(); needed where no import path leads to it.
        device: of a torch module, where it computes; by default the CPU.

    Raises:
        FileNotFoundError: there is no run, or no such policy in it.
        shoal.Error: the checkpoint is damaged, or none of Shoal's.
    """
    directory = checkpoint_dir(run_dir, which)
    if is_of_module(directory):
        with needs_torch("a policy that is a torch module"):
            from shoal.learn.modules.policy import load

        return load(directory, policy, device)
    for name, value in (("policy", policy), ("device", device)):
        if value is not None:
            raise ValueError(
                f"{name}= is of runs that trained a torch module; {run_dir} has one of Shoal's own networks"
            )
    return Policy(_learn.Policy.load(str(directory)))


class Policy:
    """A trained policy, the observation normaliser included. Threads: one at a time."""

    def __init__(self, native: _learn.Policy) -> None:
        self._native = native
        self._inputs = list(leaves(json.loads(native.observation_space)))
        (self._output,) = leaves(json.loads(native.action_space))
        self._samples = 0

    @never_raises
    def __repr__(self) -> str:
        return f"<Policy of {self.config['algorithm']}, trained for {self.step:,} steps>"

    def __reduce__(self) -> Any:
        raise TypeError("a policy is not pickled: hand the directory of its run on, and call load_policy() there")

    @property
    def observation_space(self) -> Any:
        """The Gymnasium space of one observation."""
        return space_from(json.loads(self._native.observation_space))

    @property
    def action_space(self) -> Any:
        """The Gymnasium space of one action."""
        return space_from(json.loads(self._native.action_space))

    @property
    def step(self) -> int:
        """The environment steps that it was trained for."""
        return self._native.step

    @property
    def config(self) -> dict[str, Any]:
        """The options that it was trained with."""
        options: dict[str, Any] = json.loads(self._native.config)
        return options

    def predict(self, observation: Any, deterministic: bool | None = True, *, is_first: Any = None) -> np.ndarray:
        """The action for one observation, or the actions for a batch of them.

        A policy of recurrent PPO goes on with what it remembers of the last call; another number of observations than there
        begins anew.

        Args:
            observation: as the environment gives it, or a batch with one more dimension in front; for Dict and Tuple
                spaces a dict or tuple of such arrays.
            deterministic: the most probable action (Discrete), the mean (Box); False samples. Of DQN: the action of the highest
                value; False explores as it did at the end. Of SAC: tanh of the mean, scaled to the bounds.
            is_first: of recurrent PPO, whether an episode begins; for a batch one for each. None: the first time alone.

        Returns:
            What `env.step` takes, of the action space's dtype, with the batch's dimension in front if there was one.

        Raises:
            TypeError: is_first= of a policy that remembers nothing; deterministic or is_first that is neither True nor False.
            ValueError: the observation does not fit the space, or is not finite; is_first for another number of rows.
        """
        batches = [leaf.batch(leaf.pick(observation)) for leaf in self._inputs]
        single = batches[0][1]
        rows = batches[0][0].shape[0]
        if any(was_single != single or array.shape[0] != rows for array, was_single in batches):
            raise ValueError("some arrays of the observation are single and others batches, or of other lengths")
        begins: list[bool] = []
        if is_first is not None:
            if not self._native.remembers:
                raise TypeError(f"is_first= is of recurrent_ppo; this policy is of {self.config['algorithm']}")
            begins = first_of_episodes(is_first, rows).tolist()
        actions = np.empty((rows, *self._output.shape), self._output.dtype)
        # None is as True; only a module of one's own tells them apart.
        sampled = flag("deterministic", deterministic) is False
        self._native.act([array for array, _ in batches], [actions], not sampled, self._samples, begins)
        if sampled:
            self._samples += 1
        return actions[0] if single else actions

    def evaluate(self, envs: VectorEnv, episodes: int, seed: int, deterministic: bool | None) -> dict[str, Any]:
        """What shoal.learn.evaluate() asks."""
        return self._native.evaluate(envs._engine, episodes, seed, flag("deterministic", deterministic) is not False)
