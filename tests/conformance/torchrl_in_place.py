"""A pytest plug-in: TorchRL's batched environments are Shoal's in all of its modules while the tests run."""

from __future__ import annotations

import pytest
import torchrl.testing
from building import count, put_in_place
from torchrl import collectors, envs

import shoal.compat.torchrl as ours

NAMES = {
    envs: ["ParallelEnv", "SerialEnv"],
    collectors: ["Collector", "MultiAsyncCollector", "MultiCollector", "MultiSyncCollector"],
}

OURS = {getattr(package, name): getattr(ours, name) for package, names in NAMES.items() for name in names}

put_in_place("torchrl", OURS)

_building: dict[str, set[str]] = {kind.__name__: set() for kind in OURS}
"""Tests that have built one of them, by its name."""

for kind in OURS.values():
    count(kind, _building[kind.__name__])


def pytest_report_header() -> str:
    return f"torchrl {torchrl.__version__}: its batched environments and collectors are shoal.compat.torchrl's"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, tests in _building.items():
        terminalreporter.write_line(f"{len(tests)} tests built a {name}")
