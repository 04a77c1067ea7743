"""A pytest plug-in: tianshou's vectorised environments are Shoal's in all of its modules while the tests run."""

from __future__ import annotations

import pytest
import tianshou.highlevel.env
from building import count, put_in_place
from tianshou import env

from shoal.compat.tianshou import DummyVectorEnv, ShmemVectorEnv, SubprocVectorEnv

OURS = {
    env.DummyVectorEnv: DummyVectorEnv,
    env.ShmemVectorEnv: ShmemVectorEnv,
    env.SubprocVectorEnv: SubprocVectorEnv,
}

put_in_place("tianshou", OURS)

_building: dict[str, set[str]] = {kind.__name__: set() for kind in OURS}
"""Tests that have built one of them, by its name."""

for kind in OURS.values():
    count(kind, _building[kind.__name__])


def pytest_report_header() -> str:
    return f"tianshou {tianshou.__version__}: its vectorised environments are shoal.compat.tianshou's"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, tests in _building.items():
        terminalreporter.write_line(f"{len(tests)} tests built a {name}")
