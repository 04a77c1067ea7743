"""A run that is reported to Ray as it goes on."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal import learn
from shoal.compat.ray.run_copies import RunCopies

__all__ = ["conduct", "report_period"]

_REPORTS = 50
"""Over a run, where nobody says how many."""

_LOOK = 0.1
"""Seconds between two looks at a run."""

_NAMES = {"step": "steps", "ep_return_mean": "episode_return_mean", "ep_length_mean": "episode_len_mean"}
"""What Ray's users know by another name than Trainer.status() has."""

Report = Callable[[dict[str, float], Path | None], None]


def report_period(asked: Any, trainer: learn.Trainer) -> int:
    """Steps of environments between two reports. Raises ValueError for what is no number of steps."""
    if asked is None:
        return max(1, int(trainer.status()["total_steps"]) // _REPORTS)
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        raise ValueError(f"report_every= takes a number of steps, 1 or more, got {asked!r}")
    return asked


def conduct(trainer: learn.Trainer, every: int, report: Report, agree: Callable[[int], int] | None = None) -> None:
    """Trains to the end.

    Args:
        every: steps between two reports, at least. One more comes at the end, with the final evaluation's mean return.
        report: called with what was measured, and the copy of a run's folder where there is a newer checkpoint than before; the
            copy is gone afterwards.
        agree: where other ranks report the same run, each as often as this one: given the step that this one is at, it returns
            rank 0's, on all of them. From that step the next report is counted, and all have the same last step, so none
            reports more often than the others. None: this is the only one, and reports once an episode has ended.
    """
    copies = RunCopies(trainer.run_dir)
    following = _next(trainer.status()["step"], every)

    def tell(last: bool = False) -> None:
        with tempfile.TemporaryDirectory(prefix="shoal-") as beside:
            copy = Path(beside) / "run"
            is_newer = trainer.rank == 0 and copies.newer(copy)
            measured = _measured(trainer.status())
            if last and trainer.rank == 0 and (result := trainer.result()).evaluated_episodes:
                assert result.mean_return is not None
                measured["eval_return_mean"] = result.mean_return
            report(measured, copy if is_newer else None)

    trainer.start()
    ended = False
    while not ended:
        ended = trainer.wait(_LOOK)
        status = trainer.status()
        step = status["step"]
        if agree is not None:
            while following <= step:
                following = _next(agree(step), every)
                tell()
        elif following <= step and not ended and status["ep_return_mean"] is not None:
            following = _next(step, every)
            tell()
    tell(last=True)


def _next(step: int, every: int) -> int:
    """The first step after this one that is a multiple of `every`."""
    return (step // every + 1) * every


def _measured(status: dict[str, Any]) -> dict[str, float]:
    """The numbers of Trainer.status(). Those that there are not yet are no numbers: columns of a table stay the same."""
    return {
        _NAMES.get(name, name): math.nan if value is None else value
        for name, value in status.items()
        if not isinstance(value, str)
    }
