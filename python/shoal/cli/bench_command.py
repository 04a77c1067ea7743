"""`shoal bench`: Shoal and its peers on the same environments, in one run, alternating."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from shoal.cli import completion, plugins
from shoal.cli.console import closing_json, did_you_mean, fail, note, say, wrong_use

_BAR = 40
"""Characters of all the time."""

_BENCHMARKS = ("steps", "learning")
_TAKES = {
    "steps": ("workload", "contestant", "num_envs", "num_workers", "rounds", "seconds", "beside"),
    "learning": ("row", "seeds", "steps", "jobs", "runs", "sb3"),
    "--explain": ("explain", "num_envs", "num_workers", "seconds"),
}
"""Parameters of each kind of benchmark, beside those of all."""
_OF_ALL = ("what", "plugin", "json")


class _Bench(TyperCommand):
    """Refuses options that the kind of benchmark does not read, whatever they say: their defaults hide that they were given."""

    def invoke(self, ctx: Any) -> Any:
        what = ctx.params["what"]
        _check("benchmark", [what], _BENCHMARKS)
        kind = "--explain" if what == "steps" and ctx.params["explain"] is not None else what
        flags = {parameter.name: parameter.opts[0] for parameter in self.params}
        given = [name for name in flags if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
        if strange := [flags[name] for name in given if name not in (*_OF_ALL, *_TAKES[kind])]:
            takes = [flags[name] for name in (*_TAKES[kind], *_OF_ALL) if name != "what"]
            wrong_use(f"shoal bench {kind} does not take {', '.join(strange)}; it takes {', '.join(takes)}")
        return super().invoke(ctx)


def register(app: typer.Typer) -> None:
    app.command("bench", cls=_Bench)(bench)


def bench(
    what: str = typer.Argument("steps", metavar="[steps|learning]", help="What is measured."),
    workload: list[str] = typer.Option(None, "--workload", help="Environment to step; may be repeated [default: all]."),
    contestant: list[str] = typer.Option(
        None,
        "--contestant",
        help="Who steps it, as in shoal-process, or all of shoal; may be repeated [default: all here].",
    ),
    num_envs: list[int] = typer.Option([64], "--num-envs", min=1, help="Environments; may be repeated."),
    num_workers: int = typer.Option(None, "--num-workers", min=1, help="Workers [default: as many as CPUs]."),
    rounds: int = typer.Option(5, "--rounds", min=1, help="Measurements of each contestant."),
    seconds: float = typer.Option(1.0, "--seconds", min=0.001, help="Length of one measurement."),
    beside: int = typer.Option(0, "--beside", min=0, help="Processes that compute meanwhile, as other programs do."),
    explain: str = typer.Option(
        None,
        "--explain",
        help="Measure nothing against others: show where a step's time goes in this environment.",
        autocompletion=completion.env_ids,
    ),
    row: list[str] = typer.Option(
        None,
        "--row",
        help="Of learning: an algorithm's preset, as in ppo/CartPole-v1; may be repeated [default: all that are short].",
    ),
    seeds: int = typer.Option(10, "--seeds", min=1, help="Of learning: runs of each row."),
    steps: int = typer.Option(None, "--steps", min=1, help="Of learning: environment steps [default: the row's]."),
    jobs: int = typer.Option(None, "--jobs", min=1, help="Of learning: runs at a time [default: as many as CPUs]."),
    runs: Path = typer.Option(
        None,
        "--runs",
        file_okay=False,
        help="Of learning: a directory that keeps the runs; what ended there is not trained again, what was begun goes on.",
    ),
    sb3: bool = typer.Option(False, "--sb3", help="Of learning: Stable-Baselines3 with the same settings, too."),
    plugin: list[Path] = plugins.OPTION,
    json: bool = typer.Option(False, "--json", help="End with one line of JSON, alone on stdout."),
) -> None:
    """Measure environment steps per second against other libraries, and print ratios with their spreads.

    learning: train presets with many seeds, and print what their last policies reach, with intervals, beside what others publish.
    """
    from rich.console import Console

    plugins.load(plugin)
    if what == "learning":
        return _learning(row, seeds, steps, jobs, runs, sb3, json)
    if explain is not None:
        if len(num_envs) != 1:
            wrong_use("--explain is of one environment: it takes one --num-envs")
        return _explain(explain, num_envs[0], num_workers, seconds, json)

    from shoal.bench import CONTESTANTS, WORKLOADS, run

    _check("workload", workload or (), WORKLOADS)
    _check("contestant", contestant or (), [*CONTESTANTS, *dict.fromkeys(c.adapter for c in CONTESTANTS.values())])
    result = run(
        workloads=workload or None,
        num_envs=num_envs,
        num_workers=num_workers,
        contestants=contestant or None,
        rounds=rounds,
        seconds=seconds,
        beside=beside,
        console=Console(stderr=json),
    )
    if json:
        closing_json(result.to_dict())


def _explain(env: str, num_envs: int, num_workers: int | None, seconds: float, json: bool) -> None:
    from shoal.bench.explain import explain

    program, seen = explain(env, num_envs, num_workers, seconds, note)
    each = 1e6 / max(1, seen.steps)  # microseconds a batch
    lines = [
        f"{env}, {num_envs} environments, {program}: {seen.steps:,} steps of all in {seen.seconds:.2f} s, "
        f"{num_envs * seen.steps / seen.seconds:,.0f} a second"
    ]
    width = max(len(part.name) for part in seen.parts)
    for part in sorted(seen.parts, key=lambda part: -part.seconds):
        share = part.seconds / seen.seconds
        bar = "█" * round(_BAR * share)
        lines.append(f"{part.name:<{width}} {100 * share:6.1f} % {each * part.seconds:10.1f} µs  {bar}".rstrip())
    (note if json else say)("\n".join(lines))
    if json:
        parts = {part.name: part.seconds for part in seen.parts}
        about = {"env": env, "num_envs": num_envs, "program": program}
        closing_json({**about, "seconds": seen.seconds, "steps": seen.steps, "parts": parts})


def _learning(
    row: list[str], seeds: int, steps: int | None, jobs: int | None, runs: Path | None, sb3: bool, json: bool
) -> None:
    from rich.console import Console

    from shoal.bench.learning import ROWS, row_named, run

    _check("row", map(row_named, row or ()), ROWS)
    try:
        found = run(row or None, seeds, sb3=sb3, steps=steps, jobs=jobs, runs=runs, console=Console(stderr=json))
    except ValueError as error:
        wrong_use(str(error))
    if json:
        closing_json(found)
    if failed := sum(len(row["failed"]) for row in found["rows"]):
        fail(f"{failed} {'seed' if failed == 1 else 'seeds'} failed; the lines of their rows say why")


def _check(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            wrong_use(f"there is no {what} {name!r}{did_you_mean(name, known) or '; there are ' + ', '.join(known)}")
