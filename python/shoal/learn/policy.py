"""Policies out of runs: observations in, actions out, in NumPy. No torch, no environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from shoal import _core, _learn
from shoal.learn.spaces import leaves
from shoal.runs import checkpoint_dir

__all__ = ["Policy", "load_policy"]


def load_policy(run_dir: str | Path, which: str | None = None) -> Policy:
    """The policy of a run.

    Args:
        run_dir: the directory of a run, or of one checkpoint.
        which: "best" (of all evaluations) or "last"; None: the best where there is one.

    Raises:
        FileNotFoundError: there is no run, or no such policy in it.
        shoal.Error: the checkpoint is damaged, or none of Shoal's.
    """
    return Policy(_learn.Policy.load(str(checkpoint_dir(run_dir, which))))


class Policy:
    """A trained policy, the observation normaliser included. Threads: one at a time."""

    def __init__(self, native: _learn.Policy) -> None:
        self._native = native
        self._inputs = list(leaves(json.loads(native.observation_space)))
        (self._output,) = leaves(json.loads(native.action_space))
        self._samples = 0

    @property
    def observation_space(self) -> Any:
        """The Gymnasium space of one observation."""
        return _core.env.space_from_json(self._native.observation_space)

    @property
    def action_space(self) -> Any:
        """The Gymnasium space of one action."""
        return _core.env.space_from_json(self._native.action_space)

    @property
    def step(self) -> int:
        """The environment steps that it was trained for."""
        return self._native.step

    @property
    def config(self) -> dict[str, Any]:
        """The options that it was trained with."""
        options: dict[str, Any] = json.loads(self._native.config)
        return options

    def predict(self, observation: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or the actions for a batch of them.

        Args:
            observation: as the environment gives it, or a batch with one more dimension in front; for Dict and Tuple
                spaces a dict or tuple of such arrays.
            deterministic: the most probable action (Discrete), the mean (Box); False samples.

        Returns:
            What `env.step` takes, of the action space's dtype, with the batch's dimension in front if there was one.

        Raises:
            ValueError: the observation does not fit the space.
        """
        batches = [leaf.batch(leaf.pick(observation)) for leaf in self._inputs]
        single = batches[0][1]
        rows = batches[0][0].shape[0]
        if any(was_single != single or array.shape[0] != rows for array, was_single in batches):
            raise ValueError("some arrays of the observation are single and others batches, or of other lengths")
        actions = np.empty((rows, *self._output.shape), self._output.dtype)
        self._native.act([array for array, _ in batches], [actions], deterministic, self._samples)
        if not deterministic:
            self._samples += 1
        return actions[0] if single else actions
