"""What all Python tests share: a bound on what a test may leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


def _children() -> set[int]:
    """The living children of this process, whichever of its threads started them."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except OSError:
            continue  # the thread ended meanwhile
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return ""


@pytest.fixture(autouse=True)
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process. `@pytest.mark.keeps_processes` is for those that share one on purpose."""
    before = _children()
    yield
    if request.node.get_closest_marker("keeps_processes"):
        return
    left = {pid: _name(pid) for pid in _children() - before}
    assert not left, f"the test left processes: {left}"


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the shell that would change what the commands print or do."""
    for name in ("SHOAL_TRACEBACK", "SHOAL_COMMAND", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
