"""The `shoal` command: one module a subcommand, imported when it runs."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status (0 done, 1 failed, 2 wrong use, 130 interrupted)."""
    try:
        from shoal.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
