"""How a training run is shown while it goes on: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

_LINE_EVERY = 10.0  # seconds between two lines where there is no terminal
_LOSSES = (("policy_loss", "policy"), ("value_loss", "value"), ("entropy", "entropy"), ("approx_kl", "kl"))


def make_progress(title: str, total_steps: int, quiet: bool) -> Quiet:
    """The display that fits stderr."""
    if quiet:
        return Quiet()
    return Bar(title, total_steps) if sys.stderr.isatty() else Lines(total_steps)


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
        line = f"{status['step']:,} of {self._total_steps:,} steps   {_speed(status)}   {_returns(status)}   {_losses(status)}"
        print(line.rstrip(), file=sys.stderr, flush=True)


class Bar(Quiet):
    """A live bar with the figures that tell how a run is going."""

    def __init__(self, title: str, total_steps: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            auto_refresh=False,  # drawn by show(): no second thread takes the interpreter from the learner's hooks
            transient=False,
        )
        self._task = self._progress.add_task(title, total=total_steps, figures="starting …")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.refresh()
        self._progress.stop()

    def show(self, status: Mapping[str, Any]) -> None:
        figures = f"{status['step']:,} steps  {_speed(status)}  {_returns(status)}  [dim]{_losses(status)}[/dim]"
        self._progress.update(self._task, completed=status["step"], figures=figures, refresh=True)


def _speed(status: Mapping[str, Any]) -> str:
    return f"{status['steps_per_second']:,.0f}/s" if _known(status, "steps_per_second") else ""


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
