"""Paths that documents and comments name exist, and every folder of sources says what is in it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    "src",
    "python",
    "tests",
    "docs",
    "benchmarks",
    "examples",
    "cmake",
)  # a path that begins with one of them is meant as ours
SUFFIX = re.compile(r"\.(py|pyi|h|cc|md|txt|json|toml|cmake|png|safetensors)$")
IN_MARKDOWN = re.compile(r"`([^`\n]+)`|\]\(([^)#\s]+)")
IN_COMMENTS = re.compile(r"(?:^|[\s(,;])((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:h|cc|py|md))(?=$|[\s),;:.])")
IN_QUOTES = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
OF_DOCUMENTS = re.compile(r"\bdocs/[\w/-]+\.md\b")
PAGE = re.compile(r'page "([^"]+)"')
NOT_OURS = {
    "tests/vector",  # Gymnasium's
    "ppo.py",  # CleanRL's, as the next two
    "ppo_continuous_action.py",
    "ppo_atari.py",
    "sched.h",  # the C library's
    "curve.png",  # written into a run
}


class Tree:
    """The files and folders that a path may mean."""

    def __init__(self, files: list[str]):
        self.files = files
        self.names = {name.rpartition("/")[2] for name in files}
        self.places = set(files)
        for name in files:
            while name := name.rpartition("/")[0]:
                self.places.add(name)

    def has(self, word: str, folder: str) -> bool:
        """Whether `word` is there: from the root, from `folder`, or from a root of includes and imports; or by its name alone."""
        bases = ("", folder, "src", "src/shoal", "python", "python/shoal", "docs")
        return word in self.names or any(os.path.normpath(os.path.join(base, word)) in self.places for base in bases)


@pytest.fixture(scope="module")
def tree() -> Tree:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git repository here: its files are not known")
    return Tree([name for name in listed.stdout.split("\n") if name and (ROOT / name).exists()])


def unresolved(document: str, text: str, words: list[tuple[int, str]], tree: Tree) -> list[str]:
    folder = os.path.dirname(document)
    return [
        f"{document}:{text.count(chr(10), 0, position) + 1}: {word}"
        for position, word in words
        if word not in NOT_OURS and not tree.has(word, folder)
    ]


def paths_in_markdown(text: str) -> list[tuple[int, str]]:
    found = []
    for match in IN_MARKDOWN.finditer(text):
        word = (match[1] or match[2]).split("::")[0].rstrip("/").removeprefix("./")
        if "://" in word or re.search(r"[\s*{<$…]", word) or word.startswith((".", "_", "~", "/")):
            continue
        if match[2] or SUFFIX.search(word) or ("/" in word and word.split("/")[0] in ROOMS):
            found.append((match.start(), word))
    return found


def paths_in_comments(text: str) -> list[tuple[int, str]]:
    found = []
    for comment in re.finditer(r"//(.*)$", text, re.MULTILINE):
        for match in IN_COMMENTS.finditer(comment[1]):
            found.append((comment.start(), match[1]))
    return found


def test_paths_that_documents_name_exist(tree):
    lost = []
    for name in tree.files:
        if name.endswith(".md"):
            text = (ROOT / name).read_text()
            lost += unresolved(name, text, paths_in_markdown(text), tree)
    assert not lost, "\n".join(lost)


def test_files_that_comments_name_exist(tree):
    lost = []
    for name in tree.files:
        if name.endswith((".h", ".cc")):
            text = (ROOT / name).read_text()
            lost += unresolved(name, text, paths_in_comments(text), tree)
    assert not lost, "\n".join(lost)


def strings_of(text: str) -> list[tuple[int, str]]:
    """Those of a Python module, docstrings included, and their lines; adjacent ones are one."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def of_the_package(tree: Tree) -> list[tuple[str, int, str]]:
    names = [name for name in tree.files if name.startswith("python/shoal/") and name.endswith(".py")]
    return [(name, line, text) for name in names for line, text in strings_of((ROOT / name).read_text())]


def test_no_message_names_a_file_of_the_documents(tree: Tree) -> None:
    """Who has installed a wheel has none of them; a page has a title."""
    named = [f"{name}:{line}: {text}" for name, line, text in of_the_package(tree) if OF_DOCUMENTS.search(text)]
    for name in tree.files:
        if name.startswith(("src/", "python/bindings/")) and name.endswith((".h", ".cc")):
            named += [
                f"{name}: {text}" for text in IN_QUOTES.findall((ROOT / name).read_text()) if OF_DOCUMENTS.search(text)
            ]
    assert not named, "\n".join(named)
    assert OF_DOCUMENTS.search("see docs/guides/faults.md") and IN_QUOTES.findall('f("see docs/a.md")') == [
        "see docs/a.md"
    ]


def test_pages_that_messages_name_exist(tree: Tree) -> None:
    titles = {(ROOT / name).read_text().partition("\n")[0] for name in tree.files if re.match(r"docs/.*\.md$", name)}
    named = {
        (f"{name}:{line}", title)
        for name, line, text in of_the_package(tree)
        for title in PAGE.findall(" ".join(text.split()))
    }
    assert named
    assert not {(where, title) for where, title in named if f"# {title}" not in titles}


def test_a_path_that_does_not_exist_is_found():
    text = "See `src/shoal/learn/networks.h` and [the page](docs/nowhere.md), not `networks` or `a.b`."
    assert [word for _, word in paths_in_markdown(text)] == ["src/shoal/learn/networks.h", "docs/nowhere.md"]
    assert unresolved("README.md", text, paths_in_markdown(text), Tree(["README.md"])) == [
        "README.md:1: src/shoal/learn/networks.h",
        "README.md:1: docs/nowhere.md",
    ]
    comment = "int x;  // see learn/networks.h, or\n// (checkpoint.h)\n"
    assert [word for _, word in paths_in_comments(comment)] == ["learn/networks.h", "checkpoint.h"]


def test_every_folder_of_sources_has_a_readme(tree: Tree) -> None:
    """But for test doubles, and the package's own folder, whose page is ARCHITECTURE."""
    folders = {
        name.rpartition("/")[0]
        for name in tree.files
        if name.startswith(("src/shoal/", "python/shoal/", "python/bindings/")) and name.endswith((".h", ".cc", ".py"))
    }
    missing = [
        folder
        for folder in sorted(folders - {"src/shoal", "python/shoal"})
        if not folder.endswith("/testing") and f"{folder}/README.md" not in tree.places
    ]
    assert not missing, f"no README.md in {', '.join(missing)}"
