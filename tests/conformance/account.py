"""A pytest plug-in that leaves an account of a run, and what reads it: pytest's exit code is that of whoever ended it.

A test file that takes its process with it (by `os._exit(0)`, say) ends pytest with a code of its own and no word; so the
run counts as whole only where pytest came to its end, and had tests from every file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VARIABLE = "SHOAL_CONFORMANCE_ACCOUNT"
"""Names the file that the account is written to."""

_ran: dict[str, int] = {}
_skipped: set[str] = set()


def pytest_collectreport(report: Any) -> None:
    if report.skipped:  # a whole file, for want of what it needs
        _skipped.add(report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    file = nodeid.partition("::")[0]
    _ran[file] = _ran.get(file, 0) + 1


def pytest_sessionfinish(exitstatus: int) -> None:
    Path(os.environ[VARIABLE]).write_text(
        json.dumps({"exit": int(exitstatus), "ran": _ran, "skipped": sorted(_skipped)})
    )


def verdict(account: Path, exit_code: int, files: Iterable[str], selected: bool) -> int:
    """The runner's own exit code.

    Args:
        account: what the plug-in has written, if it came to that.
        exit_code: of pytest's process.
        files: that must have had tests, or have been skipped; relative to pytest's root.
        selected: some tests were asked for by the caller, so that a file may have none.
    """
    if not account.exists():
        print(
            f"pytest ended with exit code {exit_code} before its tests had: one of them, or of their files, took it along"
        )
        return exit_code or 1
    told = json.loads(account.read_text())
    silent = [name for name in files if name not in told["ran"] and name not in told["skipped"]]
    if not told["ran"] or (silent and not selected):
        print(f"no test was run of {', '.join(silent) or 'any file'}")
        return exit_code or 1
    return exit_code or told["exit"]
