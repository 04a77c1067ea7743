"""Packages of pinned versions that only some commands or environments need: installed when they are first asked for."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from shoal.cli.console import fail, note

__all__ = ["install", "provide"]


def provide(tools: Sequence[str], source: Path, pins: str) -> None:
    """Installs what the file `pins` of the source folder says, unless each of `tools` is here in that version."""
    file = source / pins
    text = file.read_text()
    missing = False
    for tool in tools:
        wanted = re.search(rf"^{re.escape(tool)}==(\S+)$", text, re.MULTILINE)
        if wanted is None:
            fail(f"{file} has no line {tool}==…")
        missing |= _version(tool) != wanted[1]
    if missing and not install(source, pins):
        fail(f"{pins} could not be installed; pip says above why")


def install(source: Path, pins: str, *options: str) -> bool:
    """Installs what the file `pins` of the source folder says, into this interpreter's environment. False where pip
    could not, which has said why."""
    note(f"shoal: Installing what {pins} names …")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q", *options]
    done = subprocess.run([*command, "-c", str(source / "requirements.lock"), "-r", str(source / pins)], cwd=source)
    importlib.invalidate_caches()
    return done.returncode == 0


def _version(tool: str) -> str | None:
    try:
        return metadata.version(tool)
    except metadata.PackageNotFoundError:
        return None
