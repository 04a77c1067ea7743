"""`shoal export`: the policy of a run as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import typer

from shoal.cli import completion
from shoal.cli.console import closing_json, did_you_mean, fail, note, wrong_use
from shoal.cli.runs import read_config, why_unwritable


def register(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    run_dir: Path = typer.Argument(
        ..., metavar="RUN", help="Folder of a run, or of one of its checkpoints.", autocompletion=completion.runs
    ),
    to: str = typer.Option(..., "--to", help="onnx, torch or safetensors.", autocompletion=completion.formats),
    output: Path = typer.Option(
        None, "--output", help="The file [default: policy.onnx, .pt2 or .safetensors in the run]."
    ),
    which: str = typer.Option(
        None,
        "--which",
        help="best or last [default: best, where there is one].",
        autocompletion=completion.checkpoints,
    ),
    json: bool = typer.Option(False, "--json", help="End with one line of JSON, alone on stdout."),
) -> None:
    """Write the policy of a run to a file that needs no Shoal, with a model card beside it.

    The observation normaliser is in it, and it gives the actions that the environment takes.
    """
    from shoal.learn.exporting import FORMATS, card_of
    from shoal.learn.exporting import export as write
    from shoal.runs import run_of

    if to not in FORMATS:
        wrong_use(f"there is no format {to!r}{did_you_mean(to, FORMATS) or '; there are ' + ', '.join(FORMATS)}")
    if which not in (None, "best", "last"):
        wrong_use(f"--which takes best or last, not {which!r}")
    if output is not None and not output.parent.is_dir():
        wrong_use(f"there is no folder {str(output.parent)!r} to write {output.name} to (--output)")
    read_config(run_of(run_dir))
    if why := why_unwritable(output or run_dir):
        fail(f"cannot write to {str(output or run_dir)!r}: {why}; name a file elsewhere by --output")
    try:
        file = write(run_dir, to, output, which)
    except (FileNotFoundError, ValueError) as error:
        fail(str(error))
    except ImportError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write to {str(output or run_dir)!r}: {error.strerror}; name a file elsewhere by --output")
    card = card_of(file)
    note(f"{file}: {file.stat().st_size:,} bytes; {card} tells what it is and how it is used")
    if json:
        closing_json({"file": str(file), "card": str(card)})
