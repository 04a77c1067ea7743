"""What all Python tests share: a bound on what a test may leave behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def _children(pid: int | str) -> set[int]:
    """The children of a process, whichever of its threads started them."""
    found = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    except OSError:
        pass  # a thread, or the process, ended meanwhile
    return found


def _descendants() -> set[int]:
    """All processes under this one, but for the zygotes that it keeps warm on purpose."""
    found, unseen = set(), {"self"}
    while unseen:
        children = _children(unseen.pop())
        unseen |= children
        found |= children
    launchers = getattr(sys.modules.get("shoal.process._launcher"), "_launchers", {})
    return found - {launcher.zygote_pid for launcher in launchers.values()}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return ""


@pytest.fixture(autouse=True)
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process. `@pytest.mark.keeps_processes` is for those that share one on purpose."""
    before = _descendants()
    yield
    if request.node.get_closest_marker("keeps_processes"):
        return
    left = {pid: _name(pid) for pid in _descendants() - before}
    assert not left, f"the test left processes: {left}"


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the shell that would change what the commands print or do."""
    for name in ("SHOAL_TRACEBACK", "SHOAL_COMMAND", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
