"""`shoal lint`: whether the sources of a source folder are as CONTRIBUTING.md says, without running them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from shoal.cli.console import did_you_mean, fail, say, wrong_use
from shoal.cli.pins import provide
from shoal.cli.test_command import source_folder, tool_environment

CPP_FOLDERS = ("src", "python/bindings", "examples", "benchmarks")
CPP_SUFFIXES = (".h", ".cc")
PYTHON_FOLDERS = ("python", "tests", "benchmarks", "examples", "docs")
PINS = "requirements-lint.txt"


@dataclass(frozen=True)
class Check:
    """What one command finds out.

    Attributes:
        command: of a source folder, and whether to mend what can be mended; None where there is nothing to check.
        tool: the package that the command is of, where `PINS` names it.
        brief: only the first line about each file is shown.
    """

    name: str
    what: str
    command: Callable[[Path, bool], list[str] | None]
    tool: str | None = None
    brief: bool = False


def register(app: typer.Typer) -> None:
    app.command("lint")(lint)


def lint(
    only: list[str] = typer.Option(None, "--only", metavar="CHECK", help="This check; may be repeated."),
    fix: bool = typer.Option(False, "--fix", help="Format what is not, and mend what ruff can, instead of telling."),
    listed: bool = typer.Option(False, "--list", help="Name the checks."),
) -> None:
    """Check format, layers and documents, without running anything."""
    if listed:
        for check in CHECKS:
            say(f"{check.name:14} {check.what}")
        return
    names = [check.name for check in CHECKS]
    for name in only or ():
        if name not in names:
            wrong_use(f"there is no check {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}")
    source = source_folder("sources that it checks", "lint")
    failed = [check for check in CHECKS if (not only or check.name in only) and not passes(check, source, fix)]
    if failed:
        raise typer.Exit(1)


def passes(check: Check, source: Path, fix: bool) -> bool:
    """Runs it, and prints what it found and its closing line."""
    if check.tool is not None:
        provide([check.tool], source, PINS)
    command = check.command(source, fix)
    if command is None:
        say(f"{check.name:14} nothing to check")
        return True
    try:
        result = subprocess.run(
            command,
            cwd=source,
            env=tool_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        fail(f"{command[0]} is not installed; ./shoal installs it")
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    if result.returncode == 0:
        say(f"{check.name:14} {lines[-1] if lines else 'passed'}")
        return True
    files = first_of_each_file(lines) if check.brief else {}
    for line in files.values() or lines:
        say(line)
    say(f"{check.name:14} failed" + (f": {len(files)} {'file' if len(files) == 1 else 'files'}" if files else ""))
    return False


def first_of_each_file(lines: list[str]) -> dict[str, str]:
    """The first line about each file, of a tool that writes "file:line:column: what is wrong" and more below it."""
    found: dict[str, str] = {}
    for line in lines:
        if match := re.match(r"(\S+?):\d+:\d+: (?:error|warning): ", line):
            found.setdefault(match[1], line)
    return found


# --- the checks


def _clang_format(source: Path, fix: bool) -> list[str] | None:
    files = [
        str(path.relative_to(source))
        for folder in CPP_FOLDERS
        for path in sorted((source / folder).rglob("*"))
        if path.suffix in CPP_SUFFIXES and "build" not in path.relative_to(source).parts
    ]
    return ["clang-format", *(["-i"] if fix else ["--dry-run", "--Werror"]), *files] if files else None


def _ruff_check(source: Path, fix: bool) -> list[str] | None:
    folders = _python_folders(source)
    return ["ruff", "check", *(["--fix"] if fix else []), *folders] if folders else None


def _ruff_format(source: Path, fix: bool) -> list[str] | None:
    folders = _python_folders(source)
    return ["ruff", "format", *([] if fix else ["--check"]), *folders] if folders else None


def _python_folders(source: Path) -> list[str]:
    return [folder for folder in PYTHON_FOLDERS if (source / folder).is_dir()]


def _types(source: Path, fix: bool) -> list[str] | None:
    return [sys.executable, "-m", "mypy"] if (source / "python/shoal").is_dir() else None


def _example_types(source: Path, fix: bool) -> list[str] | None:
    return [sys.executable, "tests/types/check_examples.py", "."] if (source / "examples").is_dir() else None


def _includes(source: Path, fix: bool) -> list[str] | None:
    return [sys.executable, "tests/layers/check_includes.py", "."]


def _imports(source: Path, fix: bool) -> list[str] | None:
    return [sys.executable, "tests/layers/check_imports.py", "."]


def _documents(source: Path, fix: bool) -> list[str] | None:
    return [sys.executable, "-m", "pytest", "-q", "--color=no", "tests/python/test_documents.py"]


CHECKS = (
    Check("clang-format", "C++ as .clang-format says", _clang_format, "clang-format", brief=True),
    Check("ruff", "Python by the rules in pyproject.toml", _ruff_check),
    Check("ruff-format", "Python as ruff writes it", _ruff_format),
    Check("types", "types in python/shoal and its stubs, by mypy's strict rules", _types, "mypy"),
    Check(
        "example-types", "types in the programs of examples/, as a user's own mypy sees them", _example_types, "mypy"
    ),
    Check("includes", "every include follows the arrows between layers and rooms", _includes),
    Check("imports", "no circle of imports in python/shoal", _imports),
    Check("documents", "paths that documents and comments name exist", _documents),
)
