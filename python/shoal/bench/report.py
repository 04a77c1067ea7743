"""The suite's tables and progress line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from shoal.bench.result import LIMIT, SUBJECT, BenchResult, Spread

__all__ = ["Report"]

TITLES = {
    "cartpole": "CartPole-v1",
    "noop": "an environment that does nothing",
    "image": "84 x 84 x 4 images",
    "busy": "1 ms of computing a step",
}


class Report:
    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._console.print(f"[yellow]{note}[/yellow]", highlight=False)

    @contextmanager
    def progress(self, workload: str, num_envs: int) -> Iterator[Callable[[str], None]]:
        """A line that says what is being measured, on terminals only."""
        title = f"{workload}, {num_envs} environments"
        with self._console.status(title) as status:
            yield lambda text: status.update(f"{title}: {text}")

    def table(self, result: BenchResult) -> None:
        """One workload: each contestant's rate, and Shoal's process backend against it."""
        first = result.measurements[0]
        table = Table(
            title=f"{TITLES.get(first.workload, first.workload)}, {first.num_envs} environments, "
            f"{result.num_workers} workers, {result.rounds} x {result.seconds:g} s",
            title_justify="left",
            caption=f"x: how many times as fast {SUBJECT} was.  {LIMIT}: independent processes, the limit.",
            caption_justify="left",
        )
        table.add_column("", no_wrap=True)
        for heading in ("steps/s", "from - to", "x", "from - to"):
            table.add_column(heading, justify="right", no_wrap=True)
        for m in result.measurements:
            if not m.rates:
                table.add_row(m.contestant, "failed")
                continue
            comparison = result.compare(m.workload, m.num_envs, SUBJECT, m.contestant)
            ratio = comparison.ratio if comparison is not None and m.contestant != SUBJECT else None
            table.add_row(
                f"[bold]{m.contestant}[/bold]" if m.contestant == SUBJECT else m.contestant,
                _rate(m.rate.median),
                _reach(m.rate, _rate),
                "" if ratio is None else _ratio(ratio.median),
                "" if ratio is None else _reach(ratio, _ratio),
            )
        self._console.print(table)
        for m in result.measurements:
            if m.error:
                self._console.print(f"{m.contestant} failed: {m.error}", style="red", markup=False, highlight=False)


def _reach(spread: Spread, write: Callable[[float], str]) -> str:
    return f"{write(spread.least)} - {write(spread.most)}"


def _rate(steps_per_second: float) -> str:
    return f"{steps_per_second / 1e6:.2f} M" if steps_per_second >= 1e6 else f"{steps_per_second:,.0f}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
