"""Episodes: those that training goes through, and whole fresh ones that say how good a policy is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from shoal.learn.environments import LONGEST_EPISODE
from shoal.vector.vector_env import VectorEnv

__all__ = ["EpisodeLog", "summary", "whole_episodes"]

_WINDOW = 100


class EpisodeLog:
    """Returns and lengths of the episodes of training.

    Attributes:
        count: that have ended.
        finished: (return, length) of those since it was emptied.
    """

    def __init__(self, num_envs: int) -> None:
        self.count = 0
        self.finished: list[tuple[float, int]] = []
        self._window: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    def add(self, reward: np.ndarray, ended: np.ndarray, valid: np.ndarray, is_first: np.ndarray) -> None:
        """A rollout, [steps, envs] each."""
        for t in range(len(reward)):
            self._returns[is_first[t]] = self._lengths[is_first[t]] = 0
            self._returns += reward[t]
            self._lengths += 1
            for i in np.flatnonzero(ended[t] & valid[t]):
                episode = (float(self._returns[i]), int(self._lengths[i]))
                self.count += 1
                self.finished.append(episode)
                self._window.append(episode)

    @property
    def mean_return(self) -> float:
        """Of the last hundred; NaN before the first."""
        return float(np.mean([episode[0] for episode in self._window])) if self._window else float("nan")

    @property
    def mean_length(self) -> float:
        return float(np.mean([episode[1] for episode in self._window])) if self._window else float("nan")

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "last": list(self._window)}

    def arrays(self) -> dict[str, torch.Tensor]:
        return {"returns": torch.from_numpy(self._returns.copy()), "lengths": torch.from_numpy(self._lengths.copy())}

    def load(self, state: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> None:
        self.count = state["count"]
        self._window.clear()
        self._window.extend((float(a), int(b)) for a, b in state["last"])
        self._returns[:] = arrays["returns"].numpy()
        self._lengths[:] = arrays["lengths"].numpy()


def whole_episodes(
    envs: VectorEnv,
    act: Callable[[Any, np.ndarray], np.ndarray],
    episodes: int,
    seed: int,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[list[float], list[int]] | None:
    """Returns and lengths of fresh episodes, by environment, then by time. None where it was cancelled.

    Every environment gives the same number of them (the first ones one more), and all count, so that short episodes weigh no
    more than long ones. src/shoal/learn/run/evaluator.h says the same of C++ policies.

    Args:
        act: from observations of all environments, and whether they are the first of an episode, to actions.
        seed: environment i is reset with seed + i, once.
    """
    count = envs.num_envs
    wanted = np.array([episodes // count + (i < episodes % count) for i in range(count)])
    done: list[list[tuple[float, int]]] = [[] for _ in range(count)]
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    skipped = np.zeros(count, bool)  # the row to come is that of a reset
    is_first = np.ones(count, bool)
    next_step = envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    obs, _ = envs.reset(seed=[seed + i for i in range(count)])
    while any(len(own) < n for own, n in zip(done, wanted, strict=True)):
        if cancelled():
            return None
        obs, reward, terminated, truncated, _ = envs.step(act(obs, is_first))
        is_first = skipped.copy()
        returns += np.where(skipped, 0, reward)
        lengths += ~skipped
        ended = (terminated | truncated) & ~skipped
        too_long = (lengths >= LONGEST_EPISODE) & ~ended
        for i in np.flatnonzero(ended | too_long):
            if len(done[i]) < wanted[i]:
                done[i].append((float(returns[i]), int(lengths[i])))
            returns[i] = lengths[i] = 0
        skipped = ended & next_step
        if not next_step:
            is_first |= ended
        if too_long.any():
            obs, _ = envs.reset(options={"reset_mask": too_long})
            is_first |= too_long
    whole = [episode for own in done for episode in own]
    return [episode[0] for episode in whole], [episode[1] for episode in whole]


def summary(returns: list[float], lengths: list[int]) -> dict[str, Any]:
    """As shoal.learn.Evaluation has them."""
    return {
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "mean_length": float(np.mean(lengths)),
        "returns": returns,
        "lengths": lengths,
    }
