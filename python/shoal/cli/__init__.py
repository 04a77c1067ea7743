"""The `shoal` command: one module a subcommand, imported when it runs."""

from __future__ import annotations

import io
import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status (0 done, 1 failed, 2 wrong use, 130 and 143 interrupted)."""
    _open_closed_streams()
    _replace_what_cannot_be_shown()
    try:
        from shoal.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130


def _open_closed_streams() -> None:
    """Gives a stream that was closed by who started this process (`2>&-`) to /dev/null: Python has None in its place, and
    the next file that is opened would get its number, to which workers and libraries write."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null == fd:
            os.set_inheritable(fd, True)
        setattr(sys, name, open(null, mode, closefd=False))


def _replace_what_cannot_be_shown() -> None:
    """Where a stream's encoding lacks a character, "?" is written in its place."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if stream.errors == "strict" or not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")
