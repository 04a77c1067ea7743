"""What one process gets besides what all of its context get: threads, a seed, CPUs, and who reads its output."""

from __future__ import annotations

import operator
import os
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.process._randomness import reseed

if TYPE_CHECKING:
    from shoal.multiprocessing.logging import RelayEnd

__all__ = ["Prepared", "Seed", "Settings", "allowed_cpus", "entropy", "thread_count"]

Seed = int | Sequence[int] | None


class Settings(NamedTuple):
    """Goes with a process's arguments, or a pool's to all of its workers.

    Attributes:
        threads: of torch; the variables that other libraries read are there before the process starts.
        seed: of `random`, `numpy.random` and, where it is imported, torch; or None.
        cpus: of each worker in turn; empty: any.
        relay: where its output goes; None: where its parent's goes.
        fresh_randomness: without a seed, `random`, NumPy and, where it is imported, torch are seeded by the system.
    """

    threads: int | None = None
    seed: int | tuple[int, ...] | None = None
    cpus: tuple[tuple[int, ...], ...] = ()
    relay: RelayEnd | None = None
    fresh_randomness: bool = False

    def redirect(self) -> None:
        if self.relay is not None:
            self.relay.install()

    def apply(self, slot: int, number: int) -> None:
        """In the `number`-th worker of its pool, whose slot in it is `slot`."""
        if self.cpus:
            os.sched_setaffinity(0, self.cpus[slot % len(self.cpus)])
        if self.threads is not None and (torch := sys.modules.get("torch")):
            torch.set_num_threads(self.threads)
        if self.seed is not None:
            _seed(self.seed, number)
        elif self.fresh_randomness:
            reseed()


class Prepared:
    """Stands for a process's run(): does what its settings say first."""

    def __init__(self, process: Any, settings: Settings) -> None:
        self._process = process
        self._settings = settings

    def __call__(self) -> None:
        self._settings.redirect()
        self._settings.apply(0, 0)
        type(self._process).run(self._process)


def _seed(entropy: int | tuple[int, ...], number: int) -> None:
    import numpy

    words = numpy.random.SeedSequence(entropy, spawn_key=(number,)).generate_state(16)
    random.seed(words[:8].tobytes())
    numpy.random.seed(words[8:14])
    if torch := sys.modules.get("torch"):
        torch.manual_seed(int(words[14]) << 32 | int(words[15]))


def thread_count(threads: Any, what: str) -> int | None:
    """Threads as an int; None: those of the context. Raises TypeError or ValueError, which names the option `what`."""
    if threads is None:
        return None
    if isinstance(threads, bool) or not hasattr(threads, "__index__"):
        raise TypeError(f"{what} takes an int, or None for as many as the context has, got {threads!r}")
    if not 1 <= threads < 2**31:
        raise ValueError(f"{what} takes 1 to 2**31 - 1, or None for as many as the context has, got {threads}")
    return operator.index(threads)


def entropy(seed: Any, what: str) -> int | tuple[int, ...] | None:
    """A seed as SeedSequence takes it. Raises TypeError or ValueError, which names the option `what`."""
    if seed is None:
        return None
    is_one = hasattr(seed, "__index__") and not getattr(seed, "shape", ())
    try:
        parts = [operator.index(part) for part in ([seed] if is_one else seed)]
    except TypeError:
        raise TypeError(f"{what} takes an int, a sequence of ints, or None, got {seed!r}") from None
    if any(part < 0 for part in parts):
        raise ValueError(f"{what} takes ints of 0 or more, got {seed!r}")
    return parts[0] if is_one else tuple(parts)


def allowed_cpus(cpus: Any, what: str) -> tuple[int, ...]:
    """In order.

    Raises:
        TypeError, ValueError: naming the option `what`, unless they are CPUs that this process may use, one at least.
    """
    mine = sorted(os.sched_getaffinity(0))
    try:
        wanted = tuple(sorted(operator.index(cpu) for cpu in cpus))
    except TypeError:
        raise TypeError(f"{what} takes sets of CPUs by their numbers, such as {{0, 1}}, got {cpus!r}") from None
    if not wanted or not set(wanted) <= set(mine):
        raise ValueError(f"{what}: this process may use the CPUs {mine}, and not {list(wanted)}")
    return wanted
