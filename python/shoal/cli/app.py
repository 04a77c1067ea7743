"""The table of commands, and the one place where an exception becomes a line and an exit status."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import select
import sys
import traceback
from pathlib import Path
from typing import Any

import typer

from shoal.cli.console import CommandError, did_you_mean
from shoal.cli.test_command import in_source_folder
from shoal.cli.training import Terminated
from shoal.process.error_report import traceback_of

UsageError: Any
ClickException: Any
UsageError, ClickException = typer.BadParameter.__mro__[1:3]

app = typer.Typer(
    name="shoal",
    help="Reinforcement learning in many processes over one memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    "train",
    "collect",
    "eval",
    "plot",
    "export",
    "envs",
    "guide",
    "doctor",
    "stat",
    "trace",
    "bench",
    "test",
    "lint",
    "docs",
)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    if version:
        from shoal._version import __version__

        print(__version__)
        raise typer.Exit()


OF_THE_SOURCES = ("test", "lint", "docs")  # commands that an installed package refuses, and does not list

for _name in COMMANDS:
    importlib.import_module(f"shoal.cli.{_name}_command").register(app)


def listed_commands() -> list[str]:
    return [name for name in COMMANDS if in_source_folder() or name not in OF_THE_SOURCES]


for _command in app.registered_commands:
    _command.hidden = _command.name not in listed_commands()


def _take_help_literally() -> None:
    """Typer reads help as rich's markup, to which "[default: ppo]" is a style and no text."""

    def escaped(text: str | None) -> str | None:
        return text and text.replace("[", r"\[")

    options: dict[int, Any] = {}
    for command in app.registered_commands:
        assert command.callback is not None
        command.help = escaped(inspect.getdoc(command.callback))
        options |= {id(p.default): p.default for p in inspect.signature(command.callback).parameters.values()}
    for option in options.values():  # some are several commands'
        option.help = escaped(option.help)


_take_help_literally()


def _refuse_empty_paths() -> None:
    """Of which Path makes the working directory."""

    def path(text: str | Path, *, may_be_file: bool = True) -> Path:
        if text == "":
            raise typer.BadParameter("an empty path")
        if not may_be_file and Path(text).is_file():
            raise typer.BadParameter(f"{str(text)!r} is a file")
        return Path(text)

    for command in app.registered_commands:
        assert command.callback is not None
        for parameter in inspect.signature(command.callback).parameters.values():
            if parameter.annotation in ("Path", "list[Path]"):
                option: Any = parameter.default
                option.parser = functools.partial(path, may_be_file=option.file_okay)
                option.metavar = option.metavar or ("FILE" if option.file_okay else "FOLDER")


_refuse_empty_paths()


def _usage_line(error: Any, arguments: list[str]) -> str:
    """A usage error as one line, with the nearest option or command."""
    context = getattr(error, "ctx", None)
    message = re.sub(r"\s+", " ", error.format_message()).rstrip(".")
    option = getattr(error, "option_name", None)
    if option and type(error).__name__ == "NoSuchOption":  # others have one, too: an option without its value
        known = [name for parameter in context.command.params for name in parameter.opts] if context else []
        message = f"no such option {option}" + did_you_mean(option, known)
    elif match := re.match(r"No such command '([^']*)'", message):
        message = f"no such command {match[1]!r}" + (
            did_you_mean(match[1], listed_commands()) or f"; one of {', '.join(listed_commands())}"
        )
    named = [word for word in arguments[:1] if word in COMMANDS]  # click forgets it where an option lacks its value
    path = context.command_path if context else " ".join(["shoal", *named])
    return f"{message[0].lower() + message[1:]} ({path} --help lists what there is)"


def run(arguments: list[str] | None = None) -> int:
    # Environments that users name as `module:Env-v0` are found in the folder they are in, after all that is installed.
    folder = _working_directory()
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    try:
        return app(args=arguments, prog_name="shoal", standalone_mode=False) or 0
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return 0
        return _failed(_usage_line(error, sys.argv[1:] if arguments is None else arguments), 2)
    except ClickException as error:
        return _failed(error.format_message(), error.exit_code)
    except CommandError as error:
        return _failed(str(error), error.status)
    except typer.Abort:
        return 130
    except Terminated:  # where no command has seen it
        return 143
    except (SystemExit, BrokenPipeError) as ended:
        # Click and rich take any broken pipe for the end of the program, with status 1.
        broken = ended.__context__ if isinstance(ended, SystemExit) else ended
        if not isinstance(broken, BrokenPipeError):
            raise
        return 141 if _left_by_readers() or _is_of_rich(ended) else _unforeseen(broken)
    except Exception as error:
        return _unforeseen(error)


def _working_directory() -> str | None:
    """None: it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _left_by_readers() -> bool:
    """Whether a reader of our output left. What is still to be written goes nowhere: Python flushes at its exit."""
    left = False
    for stream in (sys.stdout, sys.stderr):
        try:
            fd = stream.fileno()
        except (OSError, ValueError):  # it is closed, or no file
            continue
        poll = select.poll()
        poll.register(fd, 0)
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, fd)
            os.close(null)
            left = True
    return left


def _is_of_rich(ended: BaseException) -> bool:
    """Whether rich has found the reader gone: it has given the output to /dev/null."""
    trace = ended.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "on_broken_pipe"


def _unforeseen(error: Exception) -> int:
    """What no command has foreseen: a line; and where the code of an environment failed, that code's traceback."""
    of_an_environment = traceback_of(error)
    if os.environ.get("SHOAL_TRACEBACK"):
        traceback.print_exception(error)
    elif of_an_environment is not None:
        print(of_an_environment, file=sys.stderr)
    if isinstance(error, FileNotFoundError) and _working_directory() is None:
        return _failed("the working directory has been removed: go to another", 1)
    is_of_a_variable = isinstance(error, ValueError) and str(error).startswith("SHOAL_PLUGINS: ")
    known = is_of_a_variable or type(error).__module__.startswith(("shoal.", "gymnasium."))
    line = f"{error}" if known else f"{type(error).__name__}: {error}"
    where = "" if known or of_an_environment is not None else " (SHOAL_TRACEBACK=1 shows where)"
    return _failed(f"{line}{where}", 1)


def _failed(line: str, status: int) -> int:
    print(f"shoal: {line}", file=sys.stderr, flush=True)
    return status
