"""A pytest plug-in: TorchRL's batched environments are Shoal's in all of its modules while the tests run."""

from __future__ import annotations

import functools
import sys

import pytest
import torchrl.testing
from torchrl import collectors, envs

import shoal.compat.torchrl as ours

NAMES = {
    envs: ["ParallelEnv", "SerialEnv"],
    collectors: ["Collector", "MultiAsyncCollector", "MultiCollector", "MultiSyncCollector"],
}

OURS = {getattr(package, name): getattr(ours, name) for package, names in NAMES.items() for name in names}

for module in [module for name, module in sys.modules.items() if name.startswith("torchrl")]:
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value in OURS:
            setattr(module, name, OURS[value])

_building: dict[str, set[str]] = {kind.__name__: set() for kind in OURS}
"""Tests that have built one of them, by its name."""

_running = ""


def _count(kind: type) -> None:
    init = kind.__init__

    @functools.wraps(init)
    def counted(self: object, *arguments: object, **more: object) -> None:
        if _running:
            _building[kind.__name__].add(_running)
        init(self, *arguments, **more)

    kind.__init__ = counted  # type: ignore[misc]


for kind in OURS.values():
    _count(kind)


def pytest_runtest_logstart(nodeid: str) -> None:
    global _running
    _running = nodeid


def pytest_report_header() -> str:
    return f"torchrl {torchrl.__version__}: its batched environments and collectors are shoal.compat.torchrl's"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, tests in _building.items():
        terminalreporter.write_line(f"{len(tests)} tests built a {name}")
