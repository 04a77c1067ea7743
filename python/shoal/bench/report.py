"""The suite's tables and progress line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from shoal.bench.result import BenchResult, Measurement, Spread
from shoal.bench.roster import CONTESTANTS
from shoal.bench.workloads import WORKLOADS

__all__ = ["Report"]


class Report:
    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._console.print(note, style="yellow", markup=False, highlight=False)

    @contextmanager
    def progress(self, workload: str, num_envs: int) -> Iterator[Callable[[str], None]]:
        """A line that says what is being measured, on terminals only."""
        title = f"{workload}, {num_envs} environments"
        with self._console.status(title) as status:
            yield lambda text: status.update(f"{title}: {text}")

    def table(self, result: BenchResult) -> None:
        """One workload: each contestant's rate, and the subject's against it."""
        first = result.measurements[0]
        subject = result.subject(first.workload, first.num_envs)
        table = Table(
            title=f"{WORKLOADS[first.workload].title}, {first.num_envs} environments, "
            f"{result.num_workers} workers, {result.rounds} x {result.seconds:g} s"
            + (f", beside {result.beside} busy processes" if result.beside else ""),
            title_justify="left",
            caption=_caption(result.measurements, subject),
            caption_justify="left",
        )
        table.add_column("", no_wrap=True)
        for heading in ("steps/s", "from - to", "x", "from - to"):
            table.add_column(heading, justify="right", no_wrap=True)
        for m in result.measurements:
            table.add_row(*_row(result, m, subject))
        self._console.print(table)
        for m in result.measurements:
            if m.settings:
                text = ", ".join(f"{name}={value}" for name, value in m.settings.items())
                self._console.print(f"{m.contestant}: best with {text}", style="dim", markup=False, highlight=False)
        for m in result.measurements:
            if m.error:
                self._console.print(f"{m.contestant} failed: {m.error}", style="red", markup=False, highlight=False)


def _caption(measurements: Sequence[Measurement], subject: str | None) -> str:
    said = [] if subject is None else [f"x: how many times as fast {subject} was."]
    names = [m.contestant for m in measurements if m.contestant in CONTESTANTS]
    said += [
        f"{name}: the same in independent processes, with nothing around." for name in names if CONTESTANTS[name].plain
    ]
    return "  ".join(said)


def _row(result: BenchResult, m: Measurement, subject: str | None) -> list[str]:
    if not m.rates:
        return [m.contestant, "failed"]
    comparison = None
    if subject is not None and subject != m.contestant:
        comparison = result.compare(m.workload, m.num_envs, subject, m.contestant)
    ratio = None if comparison is None else comparison.ratio
    return [
        f"[bold]{m.contestant}[/bold]" if m.contestant == subject else m.contestant,
        _rate(m.rate.median),
        _reach(m.rate, _rate),
        "" if ratio is None else _ratio(ratio.median),
        "" if ratio is None else _reach(ratio, _ratio),
    ]


def _reach(spread: Spread, write: Callable[[float], str]) -> str:
    return f"{write(spread.least)} - {write(spread.most)}"


def _rate(steps_per_second: float) -> str:
    return f"{steps_per_second / 1e6:.2f} M" if steps_per_second >= 1e6 else f"{steps_per_second:,.0f}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
