"""The programs in the documents: what test_document_programs.py runs, and what it compares.

A page's ```python blocks are one program, in their order. A block with `if __name__ == "__main__":` is a program of its own,
and one that begins with a comment that names a file, `# walk.py`, is that file, which the page's programs may import. An
```output block is what the block before it prints; … in it stands for any text. A comment `<!-- not run: why -->` before a block
leaves it out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = re.compile(r"<!--\s*not run:\s*(.+?)\s*-->", re.DOTALL)
GUARD = re.compile(r'__name__ *== *["\']__main__')
FILE = re.compile(r"# (\w+\.py)\n")
MARK = "\x1e"
"""Begins the line that a program prints before each block."""


@dataclass(frozen=True)
class Block:
    document: str  # its path, from the root
    line: int  # of the fence, from 1
    language: str  # "" for an indented block
    text: str
    reason: str | None = None  # why it is not run

    @property
    def where(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass
class Program:
    """A script, and what it prints after each mark."""

    where: str
    source: str = ""
    files: dict[str, str] = field(default_factory=dict)
    outputs: dict[int, str] = field(default_factory=dict)  # by the line of the block


def documents() -> list[Path]:
    """Those that a user reads."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> list[Block]:
    document = path.relative_to(ROOT).as_posix()
    return list(blocks_of(document, path.read_text()))


def blocks_of(document: str, text: str) -> Iterator[Block]:
    reason = None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "html_block":
            match = NOT_RUN.search(token.content)
            reason = match and " ".join(match[1].split())
            continue
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            yield Block(document, token.map[0] + 1, token.info.strip(), token.content, reason)
        reason = None


def programs(found: list[Block]) -> list[Program]:
    """The programs of one page."""
    shared: Program | None = None
    files: dict[str, str] = {}
    all_of_them: list[Program] = []
    last: Program | None = None
    for block in found:
        if block.language == "python" and block.reason is None:
            if match := FILE.match(block.text):
                files[match[1]] = block.text
                continue
            if GUARD.search(block.text):
                last = Program(block.where)
                all_of_them.append(last)
            else:
                if shared is None:
                    shared = Program(block.document)
                    all_of_them.append(shared)
                last = shared
            add(last, block)
        elif block.language == "output" and last is not None:
            last.outputs[max(last.outputs)] = block.text
        elif block.language == "python":
            last = None
    for program in all_of_them:
        program.files = files
        program.outputs = {line: text for line, text in program.outputs.items() if text is not EVERYTHING}
    return all_of_them


EVERYTHING = "…\n"


def add(program: Program, block: Block) -> None:
    """Puts the block where it stands in its document, so that a traceback names the document's lines."""
    lines = program.source.count("\n")
    program.source += "\n" * (block.line - 1 - lines) + f"print({MARK + str(block.line)!r})\n" + block.text
    program.outputs[block.line] = EVERYTHING


def printed(stdout: str) -> dict[int, str]:
    """What each block printed, by its line."""
    parts = re.split(rf"^{MARK}(\d+)\n", stdout, flags=re.MULTILINE)
    return {int(line): text for line, text in zip(parts[1::2], parts[2::2], strict=True)}


def fits(expected: str, text: str) -> bool:
    """Whether `text` is `expected`, where … is any text and spaces at the ends of lines do not count."""
    pattern = ".*?".join(re.escape(part) for part in tidy(expected).split("…"))
    return re.fullmatch(pattern, tidy(text), re.DOTALL) is not None


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@dataclass(frozen=True)
class Command:
    where: str
    words: tuple[str, ...]


def commands(found: list[Block]) -> Iterator[Command]:
    """The lines of ```sh blocks, and those of indented blocks that call `shoal`."""
    for block in found:
        lines = block.text.replace("\\\n", " ").splitlines()
        for line in lines:
            words = split(line)
            if not words:
                continue
            if block.language == "sh" or (block.language == "" and words[0] in ("shoal", "./shoal")):
                yield Command(block.where, tuple(words))


def split(line: str) -> list[str]:
    """The words of a command, without the variables that are set before it."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return []
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words
