"""`shoal trace`: a timeline of what the processes of a program are busy with."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shoal.cli import completion
from shoal.cli.console import closing_json, fail, note, printable, wrong_use
from shoal.cli.runs import read_config, why_unwritable

if TYPE_CHECKING:
    from shoal.trace import Listener


_FULL = "there is no room for more; a shorter time (--seconds) is enough"
_INTERRUPTED = "by Ctrl-C"
_ENDED = "all that was traced has ended"


def register(app: typer.Typer) -> None:
    app.command("trace")(trace)


def trace(
    target: str = typer.Argument(
        None,
        help="A process id, or the folder of a run that goes on [default: everything].",
        autocompletion=completion.runs,
    ),
    seconds: float = typer.Option(5.0, "--seconds", min=0.001, help="How long to listen."),
    output: Path = typer.Option(Path("trace.json"), "--output", help="The file to write."),
    json: bool = typer.Option(False, "--json", help="End with one line of JSON, alone on stdout."),
) -> None:
    """Write a timeline of steps, waits, copies, inference and updates, for ui.perfetto.dev.

    Of a program that runs already, with its workers and all else that it has started. It goes on as before, and is
    a little slower for so long. Ctrl-C ends it before, with a timeline of what came until then.
    """
    from shoal.trace import Listener

    if math.isnan(seconds):
        wrong_use("--seconds takes a number, not nan")
    if target == "":
        wrong_use("an empty path is no run: name a process id or the folder of a run, or nothing for everything")
    _check_output(output)
    pids = _processes_of(target)
    try:
        listener = Listener(pids)
    except RuntimeError as error:
        fail(str(error))
    if not listener.processes:
        fail(_absence(target))
    why_early = _listen(listener, seconds)
    processes = listener.stop()
    try:
        listener.write(output)
    except OSError as error:
        why = error.strerror if error.errno is None else os.strerror(error.errno)
        fail(f"cannot write to {str(output)!r}: {why}; name a file elsewhere by --output")
    events = sum(len(process["span"]) for process in processes)
    lost = sum(process["lost"] for process in processes)
    if why_early:
        note(f"stopped early: {why_early}")
    if lost:
        note(f"{_count(lost, 'span')} of {events + lost:,} came faster than they were read, and are missing")
    if not events:
        note("a span is written when it ends, so a call that hangs is not in it; shoal stat shows what hangs where")
    note(
        f"{printable(str(output))}: {_count(events, 'span')} of {_count(len(processes), 'process')}; open it in https://ui.perfetto.dev"
    )
    if json:
        closing_json({"output": str(output), "processes": len(processes), "spans": events, "lost": lost})
    if why_early == _INTERRUPTED:
        raise typer.Exit(130)


def _check_output(file: Path) -> None:
    """Before it is listened: what came could not be written, and is not to be had again."""
    from shoal.runs import kept_by_a_run

    if not file.parent.is_dir():
        wrong_use(f"there is no folder {str(file.parent)!r} to write {file.name} to (--output)")
    if file.is_dir():
        wrong_use(f"{str(file)!r} is a folder; name a file in it by --output")
    if why := kept_by_a_run(file):
        wrong_use(f"{str(file)!r} {why} (--output)")
    if why := why_unwritable(file):
        fail(f"cannot write to {str(file)!r}: {why}; name a file elsewhere by --output")


def _listen(listener: Listener, seconds: float) -> str | None:
    """Why it did not listen for so long; None: it did."""
    try:
        note(f"listening to {_count(listener.processes, 'process')} for {seconds:g} s")
        is_full = listener.listen(seconds)
        return _FULL if is_full else _ENDED if listener.have_ended else None
    except KeyboardInterrupt:
        return _INTERRUPTED


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def _processes_of(target: str | None) -> Callable[[], Iterable[int]]:
    from shoal.stat.family import family
    from shoal.stat.processes import mine

    if target is None:
        own = os.getpid()
        return lambda: (pid for pid in mine() if pid != own)
    pid = int(target) if target.isdecimal() else _trainer_of(target)
    return lambda: family(pid)


def _trainer_of(target: str) -> int:
    from shoal.stat.processes import mine
    from shoal.stat.runs import of_processes, trainer_in

    read_config(Path(target))
    folder = Path(target).resolve()
    trained, pid = trainer_in(folder, of_processes(mine()))
    if not trained:
        fail(f"nobody trains in {target!r} now; shoal stat {target} says what became of it")
    if pid is None:
        fail(
            f"a process that cannot be seen from here trains in {target!r}: another user's, or a container's; "
            "shoal trace sees it where that runs"
        )
    return pid


def _absence(target: str | None) -> str:
    from shoal.stat.processes import in_a_container

    if target is None:
        return "no program of this user has anything of Shoal's to trace: vector environments, training, model services"
    if why := in_a_container(target):
        return why
    if target.isdecimal():
        return (
            f"process {target} has nothing of Shoal's to trace (vector environments, training, model services), "
            "or there is no such process of this user"
        )
    return f"the processes of {target!r} have ended"
