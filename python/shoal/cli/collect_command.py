"""`shoal collect HOST:PORT`: collects for a learner on another host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from shoal.cli import plugins
from shoal.cli.console import CommandError, closing_json, fail, note, say, wrong_use


def register(app: typer.Typer) -> None:
    app.command("collect")(collect)


def collect(
    address: str = typer.Argument(
        ..., metavar="HOST:PORT", help="Where the learner listens: shoal train … --listen.", show_default=False
    ),
    num_collectors: int = typer.Option(
        1, "--num-collectors", min=1, help="How many; each steps as many environments as the run's num_envs."
    ),
    num_workers: int = typer.Option(
        None,
        "--num-workers",
        min=0,
        help="Processes in which each steps its environments; 0: its own [default: its share of the CPUs].",
    ),
    wait: float = typer.Option(
        0.0,
        "--wait",
        min=0.0,
        metavar="SECONDS",
        help="How long the learner may take to come, and to come back where it is lost or stopped [default: it has to be there].",
        show_default=False,
    ),
    plugin: list[Path] = plugins.OPTION,
    json: bool = typer.Option(False, "--json", help="End with one line of JSON, alone on stdout."),
) -> None:
    """Collect for a learner on another host, or on this one, until its run is over.

    The learner says what to step. SHOAL_GROUP_SECRET has to be the same on both sides, unless both are on one host.
    """
    from shoal.cli.training import Terminated, terminable
    from shoal.errors import ConnectionLost, Error
    from shoal.learn.remote import collect as collect_for

    def tell(assigned: dict[str, Any]) -> None:
        number, config = assigned["number"], assigned["config"]
        note(
            f"collector {number} of run {assigned['run']}: {config['num_envs']} of {assigned['env']}, {config['algorithm']}"
        )

    plugins.load(plugin)
    with terminable():
        try:
            done = collect_for(
                address,
                num_collectors=num_collectors,
                num_workers=num_workers,
                wait=wait,
                callback=tell if num_collectors == 1 else None,
            )
        except KeyboardInterrupt:
            raise CommandError("stopped; the learner goes on without", 130) from None
        except Terminated:
            raise CommandError("stopped; the learner goes on without", 143) from None
        except ValueError as error:
            if error.__cause__ is not None:
                raise  # a worker's own
            wrong_use(str(error))
        except (ConnectionLost, TimeoutError) as error:
            fail(f"{error}; --wait waits for it to come back" if not wait else str(error))
        except Error as error:
            if error.__cause__ is not None:
                raise
            fail(str(error))
    tell_end = note if json else say
    tell_end(f"{done.why}: {done.rollouts:,} rollouts of {done.steps:,} steps were collected for it")
    if json:
        closing_json(vars(done))
