"""What becomes of environments that die, hang or fail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shoal.unknown_arguments import named_when_unknown

__all__ = ["ON_FAULT", "Backoff", "Fault", "FaultPolicy"]

ON_FAULT = ("raise", "restart", "drop")


@named_when_unknown
@dataclass(frozen=True)
class FaultPolicy:
    """What a fault leads to: the death, the hang or the failure of an environment or of its worker process.

    Whatever the policy, the rows of a fault are no transitions: `truncated` is True, the reward 0, the observation the last
    one (zeros where it was half written), and `infos["fault"]` holds a `shoal.Fault`. All other environments go on as if
    nothing had happened. Where an environment raises in its reset or step, it alone is lost (of native ones, whose batch refuses
    an action, all of that worker); where its worker ends or has to be killed, all environments of that worker are.

    Attributes:
        on_fault: "raise" raises the environment's own exception, or `shoal.WorkerDied`; the environments are then of no
            more use. "restart" makes new ones in the place of the lost. "drop" goes on without them: their rows stay
            `truncated`, marked by `infos["dropped"]`, and their actions are ignored. With both, "fault", "down" and "dropped"
            of an environment's own info are left out.
        max_restarts: for "restart": more faults than these within `restart_window` seconds raise `shoal.TooManyFaults`,
            which tells of all of them. "drop" raises it when no environment is left. One cause counts once: a zygote that
            is killed takes its workers with it, however many they are.
        restart_window: seconds.
        backoff: for "restart": the first restart of a place within the window is at once, the second waits so many seconds,
            each further one twice as long as the one before, up to `max_backoff`. Until the new environment is there its
            row is down: `truncated`, marked by `infos["down"]`, its action ignored. Only when every environment is down
            does a step wait; an explicit reset waits for those that it selects.
        max_backoff: seconds.
        start_timeout: seconds for a worker to build its environments; None takes that of WorkerOptions.
        reset_timeout: seconds for one environment's reset; None: no bound. The worker is killed then, and the fault tells
            its Python stack.
        step_timeout: seconds for one environment's step, as `reset_timeout`.

    The first row of a new environment is its reset, which ignores the action and gives reward 0. In next-step mode that is so of
    every episode; in same-step mode it is the row after one with `infos["fault"]` or `infos["down"]`, and has no mark of its own.

    A new environment is reset with a seed that follows from the last one that was given for its row and from the number of
    environments that the row has had; without one, as its own reset does.
    """

    on_fault: str = "restart"
    max_restarts: int = 3
    restart_window: float = 60.0
    backoff: float = 0.1
    max_backoff: float = 10.0
    start_timeout: float | None = None
    reset_timeout: float | None = None
    step_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.on_fault not in ON_FAULT:
            raise ValueError(f"FaultPolicy(on_fault=…) takes 'raise', 'restart' or 'drop', got {self.on_fault!r}")
        if not isinstance(self.max_restarts, int) or isinstance(self.max_restarts, bool) or self.max_restarts < 0:
            raise ValueError(f"FaultPolicy(max_restarts=…) takes an int of 0 or more, got {self.max_restarts!r}")
        for name in ("restart_window", "backoff", "max_backoff"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value):
                raise ValueError(f"FaultPolicy({name}=…) takes seconds, 0 or more, got {value!r}")
        for name in ("start_timeout", "reset_timeout", "step_timeout"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= 0.001):
                raise ValueError(f"FaultPolicy({name}=…) takes None or at least 0.001 seconds, got {value!r}")

    def settings(self, start_timeout: float) -> dict[str, Any]:
        """For the C++ engine, where a timeout of 0 is none; `start_timeout` is that of WorkerOptions."""
        return {
            "on_fault": self.on_fault,
            "max_restarts": self.max_restarts,
            "restart_window": min(self.restart_window, _LONGEST),
            "backoff": min(self.backoff, _LONGEST),
            "max_backoff": min(self.max_backoff, _LONGEST),
            "start_timeout": min(start_timeout if self.start_timeout is None else self.start_timeout, _LONGEST),
            "reset_timeout": min(self.reset_timeout or 0.0, _LONGEST),
            "step_timeout": min(self.step_timeout or 0.0, _LONGEST),
        }


class Backoff:
    """When a place is started again after its faults, as a `FaultPolicy` has it: what the engine's `FaultLedger` does in C++."""

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0
        self._last = 0.0

    def after_fault(self, now: float) -> float:
        """Seconds to wait, of one more fault at `now`, in seconds of any clock. Faults are in a row while none is longer than the
        policy's window after the one before."""
        policy = self._policy
        goes_on = self._in_a_row > 0 and now - self._last <= policy.restart_window
        self._in_a_row = self._in_a_row + 1 if goes_on else 1
        self._last = now
        if self._in_a_row == 1:
            return 0.0
        return min(policy.max_backoff, policy.backoff * 2.0 ** min(self._in_a_row - 2, 30))


_LONGEST = 1e6
"""Seconds; more overflows no clock."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


@dataclass(frozen=True)
class Fault:
    """One fault, in `infos["fault"]` of every row that it cost.

    Attributes:
        kind: "exception" (the environment raised), "killed" (a signal ended the worker), "hang" (a timeout passed),
            "memory" (the kernel or the worker's limit of memory ended it) or "exit" (it ended itself).
        message: what happened, in a line.
        number: from 1, in the order in which they were found; the same for all workers that ended with their zygote.
        worker: its index.
        env: the environment whose code ran, which need not be the row's own; None where nobody's did or it is not known.
        pid: the worker's process.
        restarts: how many new environments the place had had before.
        signal: that ended the worker; None where none did, or where it ended with its zygote, as the message then says.
        exitcode: of a worker that ended itself.
        seed: the last that the environment was reset with; None without one or where it is not known.
        action: that it was given, as text; "" where there was none or it is not known.
        episode_step: steps that its episode had had before; None where that is not known.
        details: traceback, Python stack, last lines of output: text of several lines, or "".
    """

    kind: str
    message: str
    number: int
    worker: int
    env: int | None
    pid: int
    restarts: int
    signal: int | None
    exitcode: int | None
    seed: int | None
    action: str
    episode_step: int | None
    details: str

    def __str__(self) -> str:
        return f"{self.message}\n{self.details}".rstrip()
