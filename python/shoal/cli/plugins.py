"""The option --plugin, which all commands that take environments have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from shoal.cli.console import wrong_use

__all__ = ["OPTION", "load"]

OPTION = typer.Option(
    None, "--plugin", metavar="FILE.so", help="Shared library with environments of your own; may be repeated."
)


def load(paths: Iterable[Path] | None) -> None:
    """Loads the plug-ins; one line for one that cannot be."""
    if not paths:
        return
    from shoal.envs import load_plugin

    for path in paths:
        try:
            load_plugin(path)
        except ValueError as error:
            wrong_use(f"--plugin: {error}")
