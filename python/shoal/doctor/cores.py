"""What the CPUs are worth side by side: two of them may be halves of one core, and a virtual machine does not say so."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from dataclasses import dataclass

__all__ = ["SideBySide", "side_by_side"]

MOST = 8  # CPUs that are tried
ROUNDS = 3

# Confined to the CPU of its argument: for each line, which is a number of seconds, counts turns of a loop for so long, and answers
# with turns per second of CPU time, and with the share of the CPU that it had.
LOOP = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
for line in sys.stdin:
    end = time.perf_counter() + float(line)
    turns, begin = 0, time.thread_time()
    while time.perf_counter() < end:
        for _ in range(1000):
            turns += 1
    spent = time.thread_time() - begin
    print(turns / spent, min(1.0, spent / float(line)), flush=True)
"""


@dataclass(frozen=True)
class SideBySide:
    """So many CPUs, each with a loop of its own, do the work of `worth` that have the machine to themselves."""

    cpus: int
    worth: float
    share: float = 1.0  # of the CPUs that the loops had; the rest went to other programs

    @property
    def halves(self) -> bool:
        """Whether some of them must be halves of one core."""
        return self.worth < 0.75 * self.cpus

    @property
    def disturbed(self) -> bool:
        """Whether other programs ran: what was alone had a neighbour, too, so that halves of a core may pass for cores."""
        return self.share < 0.9

    def __str__(self) -> str:
        text = f"{self.cpus} CPUs side by side do the work of {self.worth:.1f}"
        text += ": they behave as halves of cores" if self.halves else ""
        return f"{text} (measured while other programs ran)" if self.disturbed else text


def side_by_side(seconds: float = 0.05) -> SideBySide:
    """Measures it, in about half a second: processes of their own, confined to a CPU each, one alone and all together in turns.

    Raises:
        OSError: when they cannot be started, or end.
    """
    cpus = sorted(os.sched_getaffinity(0))[:MOST]
    if len(cpus) == 1:
        return SideBySide(1, 1.0)
    programs: list[subprocess.Popen[str]] = []
    try:
        for cpu in cpus:
            command = [sys.executable, "-S", "-E", "-c", LOOP, str(cpu)]
            programs.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for program in programs:
            _answer(program)
        found, shares = [], []
        for _ in range(ROUNDS):
            single = [_rates([program], seconds)[0] for program in programs[:2]]
            together = _rates(programs, seconds)
            found.append(sum(rate for rate, _ in together) / statistics.mean(rate for rate, _ in single))
            shares.append(min(share for _, share in [*single, *together]))
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    return SideBySide(len(cpus), statistics.median(found), statistics.median(shares))


def _rates(programs: list[subprocess.Popen[str]], seconds: float) -> list[tuple[float, float]]:
    """Of each: turns per second of CPU time, and its share of the CPU."""
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(f"{seconds}\n")
        program.stdin.flush()
    answers = [_answer(program).split() for program in programs]
    return [(float(rate), float(share)) for rate, share in answers]


def _answer(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        raise OSError("a loop on a CPU of its own ended before it was measured")
    return line
