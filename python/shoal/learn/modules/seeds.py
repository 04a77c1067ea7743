"""Random numbers that follow from the seed of a run and from what they are for, so that a resumed run draws the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import torch

__all__ = ["For", "derived", "drawing_from"]


class For(IntEnum):
    """What random numbers are for."""

    WEIGHTS = 0
    RESET = 1
    ACTING = 2
    SHUFFLE = 3
    UPDATE = 4
    VALUES = 5
    EVALUATION = 6
    FINAL = 7
    CHECK = 8
    FOLLOWING = 9


def derived(seed: int, what: For, *which: int) -> int:
    """A seed below 2**30: with the number of an environment added it stays below the 2**31 that all generators take."""
    return int(np.random.SeedSequence((seed, what, *which)).generate_state(1, np.uint32)[0] >> 2)


@contextlib.contextmanager
def drawing_from(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, the global generators of torch (the CPU's, and the device's) and of NumPy begin at `seed`; afterwards they are
    as they were."""
    outer_numpy, outer = np.random.get_state(legacy=False), torch.get_rng_state()
    outer_cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if outer_cuda is not None:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
    finally:
        np.random.set_state(outer_numpy)
        torch.set_rng_state(outer)
        if outer_cuda is not None:
            torch.cuda.set_rng_state(outer_cuda, device)
