"""Random numbers that follow from the seed of a run and from what they are for, so that a resumed run draws the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import torch

from shoal.collect.generators import generators_of_devices

__all__ = ["For", "begin_at", "derived", "drawing_from"]


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


def begin_at(seed: int) -> None:
    """The global generators of torch (the CPU's, and those of CUDA devices where CUDA is in use) and of NumPy begin at `seed`."""
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    for generator in generators_of_devices(torch):
        generator.manual_seed(seed)


@contextlib.contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Inside, these generators begin at `seed`; afterwards they are as they were."""
    outer_numpy, outer = np.random.get_state(legacy=False), torch.get_rng_state()
    devices = [(generator, generator.get_state()) for generator in generators_of_devices(torch)]
    try:
        begin_at(seed)
        yield
    finally:
        np.random.set_state(outer_numpy)
        torch.set_rng_state(outer)
        for generator, state in devices:
            generator.set_state(state)
