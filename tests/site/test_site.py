"""The pages that `shoal docs` makes: without a warning, whole, and linked to what is there. `./shoal test --only docs` runs this."""

from __future__ import annotations

import importlib.util
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from shoal.cli import main

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "docs/conf.py").is_file():
    pytest.skip("the documents are not part of an installed package", allow_module_level=True)

if not all(importlib.util.find_spec(name) for name in ("sphinx", "furo", "myst_parser")):
    pytest.skip("there is no Sphinx: ./shoal docs installs it", allow_module_level=True)


class Page(HTMLParser):
    """What a page links to, and what may be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "source", "iframe") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "search"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert main(["docs", "--out", str(folder)]) == 0  # Sphinx takes warnings as errors
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


@pytest.mark.timeout(600)
def test_every_link_of_every_page_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 60
    lost = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                lost.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                lost.append(f"{path.relative_to(site)}: {link} (no such place in that page)")
    assert not lost, "\n".join(lost)


@pytest.mark.timeout(600)
def test_pages_load_nothing_from_elsewhere_so_that_the_search_works_offline(
    site: Path, pages: dict[Path, Page]
) -> None:
    for path, page in pages.items():
        assert not [source for source in page.loads if urlsplit(source).netloc], path
    styles = [path.read_text(encoding="utf-8") for path in (site / "_static").rglob("*.css")]
    assert styles and not [text for text in styles if re.search(r"url\(['\"]?(https?:)?//", text)]
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "workerdi" in index.casefold()  # words are cut to their stems


@pytest.mark.timeout(600)
def test_the_reference_has_every_command_and_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    import shoal
    from shoal.cli.app import COMMANDS

    commands = (site / "docs/reference/command-line.html").read_text(encoding="utf-8")
    assert not [command for command in COMMANDS if f"shoal {command}" not in commands]
    anchors = set().union(*(page.anchors for path, page in pages.items() if "reference" in path.parts))
    modules = {
        name for name in shoal.__all__ if name[0].islower() and name not in ("make_vec", "share_module", "worker")
    }
    named = set(shoal.__all__) - modules - {"__version__"}
    assert not [name for name in named if not {f"shoal.{name}", f"shoal.errors.{name}"} & anchors]


@pytest.mark.timeout(600)
def test_the_reference_has_what_shoal_adds_to_multiprocessing_and_whose_arguments_it_extends(
    pages: dict[Path, Page],
) -> None:
    import multiprocessing

    import shoal.multiprocessing as mp

    def arguments(module: Any, name: str) -> list[str] | None:
        try:
            return list(inspect.signature(getattr(module, name)).parameters)
        except (TypeError, ValueError):  # no function
            return None

    ours = {
        name
        for name in mp.__all__
        if not hasattr(multiprocessing, name) or arguments(mp, name) != arguments(multiprocessing, name)
    }
    assert {"Lock", "Semaphore", "Pool", "SharedArray", "ProcessException", "cuda_collect"} <= ours
    anchors = set().union(*(page.anchors for path, page in pages.items() if path.stem == "multiprocessing"))
    assert not [name for name in ours if not {f"shoal.multiprocessing.{name}", f"shoal.{name}"} & anchors]


@pytest.mark.timeout(600)
def test_the_reference_of_cpp_has_every_public_header_and_nothing_private(site: Path) -> None:
    listed = (ROOT / "cmake/public_headers.txt").read_text(encoding="utf-8").splitlines()
    text = (site / "docs/reference/cpp.html").read_text(encoding="utf-8")
    assert not [line for line in listed if line and not line.startswith("#") and f">{line}<" not in text]
    assert "class" in text and "private:" not in text
