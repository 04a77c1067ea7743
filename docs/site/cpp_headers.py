"""The directive `shoal-headers`: every public header of C++, with the comment that opens it and what it declares."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]


def public_headers() -> list[str]:
    lines = (ROOT / "cmake/public_headers.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def reference() -> list[str]:
    """Lines of Markdown: a section for each header."""
    return [line for name in public_headers() for line in section(name, (ROOT / "src" / name).read_text("utf-8"))]


def section(name: str, text: str) -> list[str]:
    opening, _, rest = text.partition("#pragma once\n")
    return [f"## `{name}`", "", *prose(opening), "", "```cpp", *declarations(rest), "```", ""]


def prose(comment: str) -> list[str]:
    """The lines of a `//` comment; what is indented in it is a program, and stays one."""
    lines = [re.sub(r"^// ?", "", line) for line in comment.strip().splitlines()]
    made: list[str] = []
    inside = False
    for line in lines:
        begins = line.startswith("  ")
        if begins and not inside:
            made += ["", "```cpp"]
        elif inside and line and not begins:
            made += ["```", ""]
        inside = begins or (inside and not line)
        made.append(line[2:] if begins else line if inside else as_markdown(line))
    return [*made, "```"] if inside else made


def as_markdown(line: str) -> str:
    return re.sub(r"([<>*_])", r"\\\1", line)


def declarations(code: str) -> list[str]:
    """What follows the includes, without the private parts of classes."""
    kept: list[str] = []
    hidden: int | None = None  # the indentation of the class whose private part this is
    for line in code.splitlines():
        indent = len(line) - len(line.lstrip())
        if hidden is not None:
            if not (line.startswith(" " * hidden + "};") or re.match(rf" {{{hidden + 1}}}(public|protected):", line)):
                continue
            hidden = None
        if line.strip() == "private:":
            hidden = indent - 1
            continue
        if not line.startswith("#include"):
            kept.append(line)
    text = re.sub(r"\n+( *};)", r"\n\1", "\n".join(kept).strip())
    return re.sub(r"\n{3,}", "\n\n", text).splitlines()


class Headers(SphinxDirective):
    def run(self) -> list[Any]:
        for name in public_headers():
            self.env.note_dependency(str(ROOT / "src" / name))
        return self.parse_text_to_nodes("\n".join(reference()), allow_section_headings=True)


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("shoal-headers", Headers)
    return {"parallel_read_safe": True}
