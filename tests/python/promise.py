"""What Shoal promises of time, as tests hold it to that.

Two seconds after a kill -9, whoever waits knows, and what the dead had started has ended. The parts of that: a wait looks up
every 50 ms (vector/patience.h), what a worker leaves behind has 200 ms to end by itself (process/supervise/orphans.h), and the rest
is some wake-ups and the start of a process.

A machine that is slow or busy takes longer for the same, and no number of seconds is right for all of them. So the bound is
the promise, and then as much work as a machine with a CPU to give does in two seconds: so many starts of an interpreter, one
after the other, done here and now. A hang outlives them on any machine.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

SECONDS = 2.0
STARTS = 40
"""Of an interpreter, 50 ms each on a slow machine that has nothing else to do."""


def patience(waited_for: str) -> Iterator[float]:
    """Timeouts for the waits that follow one another until it is there; then AssertionError."""
    begun = time.monotonic()
    while (left := begun + SECONDS - time.monotonic()) > 0:
        yield left
    for _ in range(STARTS):
        subprocess.run([sys.executable, "-S", "-E", "-c", ""], check=True)
        yield 0.0
    raise AssertionError(
        f"{waited_for}: not within {SECONDS:g} s, nor while {STARTS} interpreters were started, "
        f"{time.monotonic() - begun:.1f} s in all"
    )


def await_readable(fds: Iterable[int], waited_for: str) -> None:
    """Until each of the descriptors (those of processes: until each has ended)."""
    left = set(fds)
    for timeout in patience(waited_for):
        left -= set(select.select(list(left), [], [], timeout)[0])
        if not left:
            return


def await_ended(pidfds: Iterable[int]) -> None:
    pidfds = list(pidfds)
    await_readable(pidfds, f"the end of {len(pidfds)} processes")


def await_pids_ended(pids: Iterable[int]) -> None:
    """Of processes whose numbers nobody can have taken over yet."""
    pidfds = []
    try:
        for pid in pids:
            try:
                pidfds.append(os.pidfd_open(pid))
            except ProcessLookupError:
                continue
        await_ended(pidfds)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def await_that(condition: Callable[[], bool], waited_for: str) -> None:
    """Looks again every millisecond."""
    for timeout in patience(waited_for):
        if condition():
            return
        time.sleep(min(timeout, 0.001))
