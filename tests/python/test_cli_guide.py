"""`shoal guide`: the guide's pages and sections in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_calls import assert_one_line, caller
from shoal.cli.pages import Page, pages

Call = Callable[..., tuple[int, str, str]]
FOLDER = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    return caller(capsys, tmp_path, monkeypatch)


def test_the_pages_are_listed_in_the_order_of_the_guide(call: Call) -> None:
    status, out, err = call("guide")
    assert (status, err) == (0, "")
    captions = [line for line in out.splitlines() if re.match(r"[A-Z][a-z ]+$", line)]
    assert captions == ["Begin", "How to", "Stories", "Come from", "Reference", "Project"]
    names = re.findall(r"^  (\S+)  +\S", out, re.MULTILINE)
    assert names[:2] == ["start", "concepts"] and len(names) == len(set(names)) == len(pages())


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)
def test_each_is_printed_by_its_name(call: Call, page: Page) -> None:
    status, out, err = call("guide", page.name)
    assert (status, err) == (0, "")
    assert out.startswith(f"# {page.title}\n") or page.title in out.splitlines()[0]
    assert not re.search(r"^```\{", out, re.MULTILINE), "only Sphinx reads this"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the documents are not part of an installed package")
def test_only_pages_that_sphinx_makes_are_missing() -> None:
    written = {file.relative_to(FOLDER).with_suffix("").as_posix() for file in FOLDER.rglob("*.md")}
    missing = {path for path in written - {page.path for page in pages()} if not path.startswith("decisions/")}
    made = {
        "index",
        "reference/python",
        "reference/cpp",
        "reference/command-line",
        "project/decisions",
        "project/rooms",
    }
    assert {path for path in missing if not path.startswith("reference/python/")} == made


@pytest.mark.parametrize(
    "word",
    [
        "own-networks",
        "Networks of your own",
        "networks of YOUR own",
        "guides/own-networks.md",
        "../guides/own-networks.md",
    ],
)
def test_a_page_by_its_title_or_its_link(call: Call, word: str) -> None:
    assert call("guide", word)[1].startswith("# Networks of your own\n")


def test_a_section_alone(call: Call) -> None:
    status, out, _ = call("guide", "errors", "workerdied")
    assert status == 0 and out.startswith("## `WorkerDied`\n")
    assert "*Remedy*" in out and out.count("\n## ") == 0


def test_a_section_has_those_in_it_and_no_heading_of_code(call: Call) -> None:
    for page in pages():
        for section in page.sections:
            assert call("guide", page.name, section.title)[1].startswith("#" * section.level + " ")
            assert not re.search(
                rf"^#{{1,{section.level}}} ", re.sub("(?ms)^```.*?^```", "", section.text).partition("\n")[2], re.M
            )


def test_where_words_are_is_told_by_commands_that_print_it(call: Call) -> None:
    status, out, _ = call("guide", "--find", "KERNEL's out-of-memory")
    assert status == 0 and "shoal guide errors WorkerDied" in out.splitlines()


def test_what_there_is_not_is_told_with_what_is_near(call: Call) -> None:
    assert_one_line(call("guide", "own-network"), 2, "no page 'own-network'; did you mean own-networks?")
    assert_one_line(call("guide", "zzzz"), 2, "no page 'zzzz'; shoal guide lists them")
    assert_one_line(call("guide", "errors", "WorkerDead"), 2, "no section 'WorkerDead'; did you mean WorkerDied?")
    assert_one_line(call("guide", "errors", "zzzz"), 2, "no section 'zzzz'; it has Error, WorkerDied, ")
    assert_one_line(call("guide", "errors", "er"), 2, "several sections with 'er': Errors, Error, ")
    assert_one_line(call("guide", "--find", "zzzz qqqq"), 1, "no section of the guide has all of zzzz, qqqq")
    assert_one_line(call("guide", "--find", " "), 2, "--find takes words")
    assert_one_line(call("guide", "errors", "--find", "x"), 2, "without PAGE")


def test_an_installation_without_the_guide_says_where_it_is(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.cli.pages.__file__", "/nowhere/at/all/cli/pages.py")
    assert_one_line(call("guide"), 1, "docs/ in the sources of Shoal")


def test_people_read_it_in_their_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/read\n")
    pager.chmod(0o755)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PAGER": str(pager), "TERM": "xterm", "COLUMNS": "60"}
    command = [sys.executable, "-m", "shoal.cli", "guide", "errors", "WorkerDied"]
    try:
        done = subprocess.run(command, stdin=theirs, stdout=theirs, env=environment, cwd=tmp_path, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    read = (tmp_path / "read").read_text()
    assert "WorkerDied" in read and "##" not in read and "*Remedy*" not in read
