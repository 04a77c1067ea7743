"""What all Python tests share: a bound on what a test may leave behind."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log_records import Records
from plugin_builds import builder
from promise import await_that


def pytest_configure() -> None:
    """Ctrl-C is as a terminal has it, also where a shell that runs the tests in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-programs", type=int, default=80, help="how many programs test_vector_random.py plays")
    parser.addoption("--random-seed", type=int, default=0, help="seed of the first of them")


def _children(pid: int | str) -> set[int]:
    """The children of a process, whichever of its threads started them."""
    found = set()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    except OSError:
        pass  # a thread, or the process, ended meanwhile
    return found


def _zygotes() -> set[int | None]:
    """Those that this process keeps warm on purpose."""
    module = sys.modules.get("shoal.process._launcher")
    launchers = [*module._launchers.values(), *module._ahead.values()] if module else []
    return {launcher.zygote_pid for launcher in launchers}


def _descendants() -> set[int]:
    """All processes under this one, but for zygotes that are kept warm."""
    zygotes = _zygotes()
    found, unseen = set(), {"self"}
    while unseen:
        children = _children(unseen.pop())
        unseen |= children
        found |= children
    tracker = sys.modules.get("multiprocessing.resource_tracker")  # CPython's, one for each program
    kept = {tracker._resource_tracker._pid} if tracker else set()
    # One may have ended since it was listed, and another may have been started.
    return found - zygotes - _zygotes() - kept


def _name(pid: int) -> str:
    """What it runs; '' where it has ended, and its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return ""


@pytest.fixture
def descendants() -> Callable[[], set[int]]:
    """The processes under this one, but for zygotes that are kept warm."""
    return _descendants


@pytest.fixture(autouse=True)
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a child process. `@pytest.mark.keeps_processes` is for those that share one on purpose."""
    before = _descendants()
    yield
    if request.node.get_closest_marker("keeps_processes"):
        return
    left: dict[int, str] = {}

    def only_living() -> bool:
        nonlocal left
        left = {pid: _name(pid) for pid in _descendants() - before}
        return all(left.values())

    await_that(only_living, "a zygote to reap its workers")
    assert not left, f"the test left processes: {left}"


@pytest.fixture
def balanced_heap() -> Iterator[None]:
    """All blocks of a test are given back, and the heap's accounts fit together."""
    from shoal._core import ipc

    ipc.sweep()
    gc.collect()
    before = ipc.stats()["blocks"]
    yield
    gc.collect()
    ipc.sweep()
    assert ipc.check() == []
    assert ipc.stats()["blocks"] <= before


@pytest.fixture
def stat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """`shoal stat` with these arguments, in a folder without runs: exit status, stdout and stderr."""
    from shoal.cli.app import run

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(["stat", "--runs", str(tmp_path / "runs"), *arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a source folder of C++ against an install tree, and returns the folder of what it made."""
    return builder(tmp_path_factory.mktemp("builds"))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[Records]:
    """What Python's logging is handed of Shoal's lines."""
    monkeypatch.delenv("SHOAL_LOG", raising=False)
    handler = Records()
    logging.getLogger("shoal").addHandler(handler)
    yield handler
    logging.getLogger("shoal").removeHandler(handler)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the shell that would change what the commands print or do."""
    for name in ("SHOAL_TRACEBACK", "SHOAL_COMMAND", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs the tests marked `own_process` in an interpreter of their own."""
    if pyfuncitem.get_closest_marker("own_process") is None or "SHOAL_TEST_OWN_PROCESS" in os.environ:
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "--color=no", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, "SHOAL_TEST_OWN_PROCESS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    if skipped := re.search(r"^SKIPPED \[1\] \S+: (.*)$", done.stdout, re.MULTILINE):
        pytest.skip(skipped[1])
    return True
