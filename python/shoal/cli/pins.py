"""Tools of pinned versions that only some commands need: installed when such a command is first called."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from shoal.cli.console import fail, note

__all__ = ["provide"]


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
    if not missing:
        return
    note(f"shoal: Installing what {pins} names …")
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-q"]
    if subprocess.run([*install, "-c", str(source / "requirements.lock"), "-r", str(file)], cwd=source).returncode:
        fail(f"{pins} could not be installed; pip says above why")


def _version(tool: str) -> str | None:
    try:
        return metadata.version(tool)
    except metadata.PackageNotFoundError:
        return None
