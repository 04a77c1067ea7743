"""Several pytest processes for one run: each takes the next file that none of the others has taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        metavar="FOLDER",
        type=Path,
        help="run only the files that no other process has taken which was given this folder, empty at first",
    )


def _taken(items: list[pytest.Item], folder: Path) -> Iterator[pytest.Item]:
    """The tests of the files that this process comes to first. A file's name in the folder says that it is taken."""
    ours: dict[Path, bool] = {}
    for item in items:
        if item.path not in ours:
            try:
                (folder / "-".join(item.path.parts[1:])).touch(exist_ok=False)
                ours[item.path] = True
            except FileExistsError:
                ours[item.path] = False
        if ours[item.path]:
            yield item


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop, over tests that are taken as it comes to them."""
    folder, option = session.config.getoption("share"), session.config.option
    if folder is None or option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return None
    taken = _taken(session.items, folder)
    item = next(taken, None)
    while item is not None:
        following = next(taken, None)  # what is torn down after a test depends on it
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True
