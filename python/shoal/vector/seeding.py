"""The arguments of reset, checked: seeds and the reset mask. What follows from the seeds for those that take a lost one's place."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal import _core
from shoal.vector.faults import Fault

__all__ = ["CheckedSeeds", "LastSeeds", "Seeds", "reset_mask_of", "seeds_left", "seeds_of"]

Seeds = int | Sequence[int | None] | None

_LIMIT = 2**64


class CheckedSeeds(NamedTuple):
    """One seed or None an environment; `large` instead of `values` where one of them does not fit into 64 bits."""

    values: list[int | None] | None
    large: list[int | None] | None


def seeds_of(seed: Seeds, num_envs: int) -> CheckedSeeds:
    """A seed for each environment: `seed + i` for a number, element i for a sequence.

    Raises:
        TypeError, ValueError: unless they are ints of 0 or more, one for each environment.
    """
    if seed is None:
        return CheckedSeeds(None, None)
    if isinstance(seed, int | np.integer):
        seeds: list[int | None] = [int(seed) + i for i in range(num_envs)]
    else:
        try:
            seeds = [None if s is None else operator.index(s) for s in seed]
        except TypeError:
            raise TypeError(
                f"seed must be an int, None, or a sequence of these for each environment, got {seed!r}"
            ) from None
    if len(seeds) != num_envs:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={len(seeds)}."
        )
    if any(s is not None and s < 0 for s in seeds):
        raise ValueError(f"seed takes ints of 0 or more, or None for no seed, got {seed!r}")
    if all(s is None or s < _LIMIT for s in seeds):
        return CheckedSeeds(seeds, None)
    return CheckedSeeds(None, seeds)


def seeds_left(seed: Seeds, mask: np.ndarray | None, num_envs: int) -> Seeds:
    """The seeds of those environments that a reset with `mask` left out; a reset without one leaves none."""
    if seed is None or mask is None or mask.all():
        return None
    checked = seeds_of(seed, num_envs)
    seeds = checked.values if checked.large is None else checked.large
    return [None if was_reset else own for own, was_reset in zip(seeds or (), mask, strict=True)]


class LastSeeds:
    """The last seed of each environment, for adapters that begin the episode of a lost one's successor by a reset of their own."""

    def __init__(self, num_envs: int) -> None:
        self._of_rows = np.full(num_envs, None, object)

    def note(self, seed: Seeds, rows: Any = slice(None)) -> None:
        """Those of a reset. `rows` selects them as an array's index does; seeds beyond 64 bits count as none."""
        count = len(self._of_rows)
        seeds = seeds_of(seed, count).values or [None] * count
        self._of_rows[rows] = np.array(seeds, object)[rows]

    def of_successors(self, faults: Mapping[int, Fault]) -> list[int | None]:
        """For a reset of those in the places of these: what the engine would give them itself. None for all others."""
        seeds: list[int | None] = [None] * len(self._of_rows)
        for row, fault in faults.items():
            if (seed := self._of_rows[row]) is not None:
                seeds[row] = _core.renewal_seed(seed, fault.restarts)
        return seeds


def reset_mask_of(mask: Any, num_envs: int) -> np.ndarray:
    """`options["reset_mask"]`: a bool array, True for at least one environment."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"`options['reset_mask']` must be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"`options['reset_mask']` must have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"`options['reset_mask']` must have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"`options['reset_mask']` must contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return np.array(mask)  # which the caller may change while the reset is under way
