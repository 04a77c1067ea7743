"""Robust means of few runs, as rliable has them (Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", NeurIPS 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["RESAMPLES", "interquartile_mean", "interval"]

RESAMPLES = 50_000


def interquartile_mean(scores: Any) -> float:
    """The mean of the middle half of all scores, whatever their tasks: int(n / 4) are left out at either end, as
    scipy.stats.trim_mean(scores, 0.25) does. So of three runs it is the mean of all.

    Args:
        scores: [runs] or [runs, tasks].
    """
    ordered = np.sort(np.asarray(scores, float), axis=None)
    if not ordered.size:
        raise ValueError("there are no scores")
    cut = ordered.size // 4
    return float(ordered[cut : ordered.size - cut].mean())


def interval(
    scores: Any,
    statistic: Callable[[Any], float] = interquartile_mean,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile interval of a stratified bootstrap: runs are drawn anew, with replacement, within each task.

    Args:
        scores: [runs] of one task, or [runs, tasks].
        statistic: of scores of that shape.
        resamples: how often runs are drawn.
        seed: of the draws.
    """
    table = np.asarray(scores, float)
    if table.ndim == 1:
        table = table[:, None]
    runs, tasks = table.shape
    random = np.random.default_rng(seed)
    if statistic is interquartile_mean:
        found = _means_of_resamples(table, random, resamples)
    else:
        columns = np.arange(tasks)
        found = np.array(
            [statistic(table[random.integers(runs, size=(runs, tasks)), columns]) for _ in range(resamples)]
        )
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    return float(low), float(high)


def _means_of_resamples(table: np.ndarray, random: np.random.Generator, resamples: int) -> np.ndarray:
    """interquartile_mean() of each, all at once."""
    runs, tasks = table.shape
    drawn = table[random.integers(runs, size=(resamples, runs, tasks)), np.arange(tasks)]
    ordered = np.sort(drawn.reshape(resamples, runs * tasks), axis=1)
    cut = runs * tasks // 4
    means: np.ndarray = ordered[:, cut : runs * tasks - cut].mean(axis=1)
    return means


def spread(scores: Sequence[float]) -> tuple[float, float]:
    """The mean, and the standard deviation over the runs (unbiased; 0 of one run)."""
    table = np.asarray(scores, float)
    return float(table.mean()), float(table.std(ddof=1)) if table.size > 1 else 0.0
