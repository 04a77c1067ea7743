"""Docstrings as the sources have them, made into what Sphinx reads: an indented block after a blank line is a program."""

from __future__ import annotations

import re
from typing import Any

SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Note|Example|Examples|Threads|Fork):\s*$")


def mark_programs(lines: list[str]) -> list[str]:
    """`lines` with a `code-block` before each indented block that stands by itself."""
    marked: list[str] = []
    before, inside = "", None
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and indent <= inside:
            inside = None
        begins = index and not lines[index - 1].strip() and indent > len(before) - len(before.lstrip())
        if inside is None and line.strip() and begins and not is_section(before) and not is_item(before):
            inside = len(before) - len(before.lstrip())
            marked += [" " * inside + ".. code-block:: python", " " * inside + "   :force:", ""]  # "…" is no Python
        marked.append(line if inside is not None else apart(line))
        if line.strip() and inside is None:
            before = line
    return marked


def apart(line: str) -> str:
    """`line` with what is glued to a name between backticks ("`Fault`s") as reStructuredText wants it."""
    return re.sub(r"(`[^`]+`)(\w?)", lambda found: found[1] + (rf"\ {found[2]}" if found[2] else ""), line)


def is_section(line: str) -> bool:
    return SECTION.match(line.strip()) is not None


def is_item(line: str) -> bool:
    return re.match(r"\s*([-*]|\d+\.) ", line) is not None


def setup(app: Any) -> dict[str, Any]:
    def process(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
        lines[:] = mark_programs(lines)

    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    return {"parallel_read_safe": True}
