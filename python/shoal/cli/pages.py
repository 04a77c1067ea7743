"""The guide as text: its pages, their sections, and what is found in them. A wheel has them as a clone does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.cli.console import did_you_mean, fail

__all__ = ["Page", "Section", "pages", "the_page", "the_section"]


@dataclass(frozen=True)
class Section:
    title: str
    level: int  # of its heading: 1 is the page's own
    text: str  # its heading, and all up to the next heading of this level or above


@dataclass(frozen=True)
class Page:
    name: str  # its file's, with the folder where two files have the same
    caption: str  # of the part of the guide that it stands in
    path: str  # in the guide's folder, without .md
    text: str

    @property
    def sections(self) -> list[Section]:
        lines = self.text.splitlines(keepends=True)
        headings = list(_headings(lines))
        found = []
        for i, (at, level, title) in enumerate(headings):
            end = next((other for other, as_high, _ in headings[i + 1 :] if as_high <= level), len(lines))
            found.append(Section(title, level, "".join(lines[at:end])))
        return found

    @property
    def title(self) -> str:
        return self.sections[0].title


def pages() -> list[Page]:
    """In the order of the guide's index, without those that only Sphinx can make: help() and --help print what they have."""
    folder = _folder()
    texts: dict[str, tuple[str, str]] = {}
    for caption, entry in _entries((folder / "index.md").read_text(encoding="utf-8")):
        for file in sorted(folder.glob(f"{entry}.md")):
            text = file.read_text(encoding="utf-8")
            if not re.search(r"^```\{(eval-rst|toctree|shoal-\w+)\}", text, re.MULTILINE):
                texts[file.relative_to(folder).with_suffix("").as_posix()] = (caption, _readable(text))
    stems = [Path(path).name for path in texts]
    return [
        Page(path if stems.count(Path(path).name) > 1 else Path(path).name, caption, path, text)
        for path, (caption, text) in texts.items()
    ]


def the_page(word: str) -> Page:
    """By its name, its path as links have it, or its title."""
    known = pages()
    asked = re.sub(r"^(\.\./)+|\.md$", "", word).removeprefix("docs/").casefold()
    found = (
        [page for page in known if asked in (page.name.casefold(), page.path.casefold())]
        or [page for page in known if asked == page.title.casefold()]
        or [page for page in known if asked == Path(page.path).name.casefold()]
    )
    if len(found) == 1:
        return found[0]
    if found:
        fail(f"there are several pages {word!r}: {', '.join(page.name for page in found)}", 2)
    meant = did_you_mean(word, [name for page in known for name in (page.name, page.title)])
    fail(f"the guide has no page {word!r}{meant or '; shoal guide lists them'}", 2)


def the_section(page: Page, words: str) -> Section:
    """By its title, or what is in that of one only."""
    named: dict[str, Section] = {}
    for section in page.sections:
        named.setdefault(section.title.casefold(), section)
    asked = words.replace("`", "").casefold()
    found = [named[asked]] if asked in named else [named[title] for title in named if asked in title]
    if len(found) == 1:
        return found[0]
    titles = [section.title for section in page.sections[1:]]
    if found:
        fail(f"{page.name} has several sections with {words!r}: {', '.join(section.title for section in found)}", 2)
    fail(f"{page.name} has no section {words!r}{did_you_mean(words, titles) or '; it has ' + ', '.join(titles)}", 2)


def _folder() -> Path:
    """That of the clone that this package lies in, or the one that was installed with it."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "docs", package.parents[1] / "docs"):
        if (folder / "index.md").is_file():
            return folder
    fail("the guide is not part of this installation; it is docs/ in the sources of Shoal")


def _entries(index: str) -> Iterator[tuple[str, str]]:
    """Of the tables of contents: captions and files, which may be patterns."""
    for table in re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL):
        (caption,) = re.findall(r"^:caption: (.*)$", table, re.MULTILINE)
        for line in table.splitlines():
            if line and not line.startswith((":", "../")):
                yield caption, line


def _readable(text: str) -> str:
    """Without what only Sphinx follows."""
    return re.sub(
        r"^```\{literalinclude\} (?:\.\./)*(\S+)\n(?:.*\n)*?```$", r"    (\1 in the sources)", text, flags=re.MULTILINE
    )


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Their lines, levels and titles; what is in a block of code is none."""
    fence = ""
    for at, line in enumerate(lines):
        marked = re.match(r" *(`{3,}|~{3,})", line)
        if marked:
            fence = "" if fence and marked[1].startswith(fence) else fence or marked[1]
        elif not fence and (heading := re.match(r"(#+) +(.*\S)", line)):
            yield at, len(heading[1]), heading[2].replace("`", "")
