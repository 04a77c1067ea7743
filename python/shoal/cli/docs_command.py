"""`shoal docs`: the guide and the reference of a source folder, as pages for a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from shoal.cli.console import fail, say, wrong_use
from shoal.cli.pins import provide
from shoal.cli.test_command import source_folder

PINS = "requirements-docs.txt"
TOOLS = ("Sphinx", "furo", "myst-parser")


def register(app: typer.Typer) -> None:
    app.command("docs")(docs)


def docs(
    out: Path = typer.Option(None, "--out", metavar="FOLDER", help="Where the pages go [default: build/docs]."),
) -> None:
    """Make the guide and the reference as pages for a browser, with a search that works offline."""
    if sys.version_info < (3, 11):
        fail(f"the tools of {PINS} need Python 3.11 or newer, and this is {sys.version.partition(' ')[0]}")
    source = source_folder("documents", "docs")
    target = (out or source / "build/docs").absolute()
    if target.exists() and not target.is_dir():
        wrong_use(f"--out {out} is no folder")
    provide(TOOLS, source, PINS)
    trees = source / "build/docs-trees"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-c", str(source / "docs")]
    done = subprocess.run([*command, "-d", str(trees), str(source), str(target)], cwd=source)
    if done.returncode:
        fail("the pages were not made; Sphinx says above why")
    say(f"{target / 'index.html'}")
