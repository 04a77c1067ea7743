"""What the commands print, and where: results on stdout, everything else on stderr, never a stack trace."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn


class CommandError(Exception):
    """Ends the command with one line: what went wrong and what to do."""

    def __init__(self, message: str, status: int = 1):
        super().__init__(message)
        self.status = status


def fail(message: str, status: int = 1) -> NoReturn:
    raise CommandError(message, status)


def wrong_use(message: str) -> NoReturn:
    """As `fail`, with the exit status of a command that was called wrongly."""
    raise CommandError(message, 2)


def program() -> str:
    """How the user calls this program: ./shoal hands its own name over in SHOAL_COMMAND."""
    return os.environ.get("SHOAL_COMMAND") or "shoal"


def note(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr, flush=True)


def say(message: str) -> None:
    """A line of the result, on stdout."""
    print(message, flush=True)


def closing_json(values: dict[str, Any]) -> None:
    """The one line of stdout under --json. Not-a-number becomes null: JSON has no word for it."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and not value - value == 0:
            return None
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return value

    print(json.dumps(plain(values), allow_nan=False), flush=True)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was most likely meant to be, or none."""
    folded = {choice.casefold(): choice for choice in choices}
    found = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def printable(text: str) -> str:
    """As it may be shown: what a terminal would take as a command, or as the end of a line, is escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """'; did you mean X?', or nothing: the end of an error line."""
    choice = nearest(word, choices)
    return f"; did you mean {printable(choice)}?" if choice else ""
