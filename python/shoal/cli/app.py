"""The table of commands, and the one place where an exception becomes a line and an exit status."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from typing import Any

import typer

from shoal.cli.console import CommandError, did_you_mean
from shoal.cli.test_command import in_source_folder
from shoal.cli.training import Terminated

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
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
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
    except BrokenPipeError:
        # The reader of our output left. Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        return _unforeseen(error)


def _unforeseen(error: Exception) -> int:
    """What no command has foreseen: a line; and where the code of an environment failed, that code's traceback."""
    if os.environ.get("SHOAL_TRACEBACK"):
        traceback.print_exception(error)
    elif type(error.__cause__).__name__ == "RemoteTraceback":
        print(str(error.__cause__).strip(), file=sys.stderr)
    known = type(error).__module__.startswith(("shoal.", "gymnasium."))
    line = f"{error}" if known else f"{type(error).__name__}: {error}"
    return _failed(line if known else f"{line} (SHOAL_TRACEBACK=1 shows where)", 1)


def _failed(line: str, status: int) -> int:
    print(f"shoal: {line}", file=sys.stderr, flush=True)
    return status
