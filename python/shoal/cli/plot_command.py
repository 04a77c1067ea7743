"""`shoal plot RUN…`: learning curves of one run or several."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import typer

from shoal.cli import completion
from shoal.cli.console import did_you_mean, fail, nearest, note, printable, say, wrong_use


def register(app: typer.Typer) -> None:
    app.command("plot")(plot)


def plot(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN…", help="Folders of runs.", show_default=False, autocompletion=completion.runs
    ),
    out: Path = typer.Option(
        None,
        "--out",
        "-o",
        metavar="FILE",
        help="The image [default: curve.png in the run; of several, curves.png here].",
    ),
    metric: str = typer.Option("return", "--metric", help="return, or a scalar's name as in TensorBoard."),
    axis: str = typer.Option("steps", "--axis", metavar="steps|seconds", help="What lies on the horizontal axis."),
) -> None:
    """Draw the learning curves of runs in one image."""
    from shoal.cli.curve import AXES, FORMATS, draw, read_curves, scalar_names
    from shoal.cli.runs import read_config

    if axis not in AXES:
        wrong_use(f"--axis takes steps or seconds, not {axis!r}")
    if out is None:
        out = runs[0] / "curve.png" if len(runs) == 1 else Path("curves.png")
    if out.suffix not in FORMATS:
        wrong_use(f"--out takes a name that ends in {', '.join(FORMATS)}, not {str(out)!r}")
    drawn = {}
    empty = []  # runs that have measured nothing yet
    for run in runs:
        read_config(run)
        try:
            if curves := read_curves(run, metric):
                drawn[str(run)] = curves
            elif metric in (known := scalar_names(run)) or len(known) == 1:
                empty.append(run)
            else:
                fail(f"{str(run)!r} has no {metric!r}{_meant(metric, known)}")
        except FileNotFoundError:
            empty.append(run)
        except (OSError, ValueError, KeyError) as error:
            fail(f"cannot read {str(run / 'progress.jsonl')!r}: {error}")
    if not drawn:
        fail(
            f"{', '.join(repr(str(run)) for run in empty)} {'has' if len(empty) == 1 else 'have'} measured nothing yet"
        )
    for run in empty:
        note(f"left out: {str(run)!r} has measured nothing yet")
    try:
        draw(drawn, out, axis, runs[0].name if len(runs) == 1 else "", metric)
    except OSError as error:
        fail(f"cannot write {str(out)!r}: {error.strerror}; name another file by --out")
    say(str(out))


def _meant(metric: str, known: Collection[str]) -> str:
    """The end of a line on a scalar that a run has not: the nearest by its whole name or the part after the slash, or all."""
    last_parts = {name.rpartition("/")[2]: name for name in known}
    part = nearest(metric, last_parts)
    by_part = "" if part is None else f"; did you mean {printable(last_parts[part])}?"
    return did_you_mean(metric, known) or by_part or f"; it has {printable(', '.join(sorted(known)))}"
