"""A pytest plug-in: tianshou's vectorised environments are Shoal's in all of its modules while the tests run."""

from __future__ import annotations

import sys

import pytest
import tianshou.highlevel.env
from tianshou import env

from shoal.compat.tianshou import DummyVectorEnv, ShmemVectorEnv, SubprocVectorEnv

OURS = {
    env.DummyVectorEnv: DummyVectorEnv,
    env.ShmemVectorEnv: ShmemVectorEnv,
    env.SubprocVectorEnv: SubprocVectorEnv,
}

for module in [module for name, module in sys.modules.items() if name.startswith("tianshou")]:
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value in OURS:
            setattr(module, name, OURS[value])

_building: dict[str, set[str]] = {kind.__name__: set() for kind in OURS}
"""Tests that have built one of them, by its name."""

_running = ""


def _count(kind: type) -> None:
    init = kind.__init__

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
    return f"tianshou {tianshou.__version__}: its vectorised environments are shoal.compat.tianshou's"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, tests in _building.items():
        terminalreporter.write_line(f"{len(tests)} tests built a {name}")
