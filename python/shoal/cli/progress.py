"""How a training run is shown while it goes on: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

_LINE_EVERY = 10.0  # seconds between two lines where there is no terminal
_LOSSES = (("policy_loss", "policy"), ("value_loss", "value"), ("entropy", "entropy"), ("approx_kl", "kl"))


def make_progress(total_steps: int, quiet: bool) -> Quiet:
    """The display that fits stderr."""
    if quiet:
        return Quiet()
    return Bar(total_steps) if sys.stderr.isatty() else Lines(total_steps)


class Quiet:
    """Shows nothing; the base of those that do. A context manager."""

    period = 0.2  # seconds between two calls of show that are worth their while

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, status: Mapping[str, Any]) -> None:
        """Shows a status of the trainer."""


class Lines(Quiet):
    """A line every few seconds: for logs."""

    def __init__(self, total_steps: int):
        self._total_steps = total_steps
        self._next = time.monotonic() + _LINE_EVERY

    def show(self, status: Mapping[str, Any]) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EVERY
        done = f"{status['step']:,} of {self._total_steps:,} steps   {_speed(status)}{_collectors(status)}"
        print(f"{done}   {_figures(status)}".rstrip(), file=sys.stderr, flush=True)


class Bar(Quiet):
    """A live bar, and under it the figures that tell how a run is going."""

    def __init__(self, total_steps: int):
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        # Drawn by show() alone: no second thread takes the interpreter from environments of this process.
        console = Console(stderr=True)
        self._group = Group
        self._progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%  {task.completed:,} steps  {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=total_steps, speed="")
        self._live = Live(self._drawn("starting …"), console=console, auto_refresh=False)

    def __enter__(self) -> Bar:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        self._progress.update(self._task, completed=status["step"], speed=_speed(status) + _collectors(status))
        self._live.update(self._drawn(_figures(status)), refresh=True)

    def _drawn(self, line: str) -> Any:
        from rich.text import Text

        return self._group(self._progress, Text(line, no_wrap=True, overflow="ellipsis"))


def _speed(status: Mapping[str, Any]) -> str:
    return f"{status['steps_per_second']:,.0f}/s" if _known(status, "steps_per_second") else ""


def _collectors(status: Mapping[str, Any]) -> str:
    return f"  {status['collectors']} collectors" if _known(status, "collectors") else ""


def _figures(status: Mapping[str, Any]) -> str:
    evaluating = "evaluating …" if status.get("phase") == "evaluating" else ""
    return "   ".join(part for part in (_returns(status), evaluating, _losses(status)) if part)


def _returns(status: Mapping[str, Any]) -> str:
    parts = []
    if _known(status, "ep_return_mean"):
        parts.append(f"return {status['ep_return_mean']:.1f}")
    if _known(status, "eval_return_mean"):
        parts.append(f"eval {status['eval_return_mean']:.1f}")
    return "  ".join(parts)


def _losses(status: Mapping[str, Any]) -> str:
    return " ".join(f"{short} {status[name]:.3g}" for name, short in _LOSSES if _known(status, name))


def _known(status: Mapping[str, Any], name: str) -> bool:
    value = status.get(name)
    return value is not None and math.isfinite(value)
