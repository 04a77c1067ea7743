"""A pytest plug-in: DI-engine's environment managers are Shoal's in all of ding while the tests run."""

from __future__ import annotations

import ding
import ding.envs
import pytest
from building import count

import shoal.compat.ding
from shoal.compat.timesteps.slots import Slots

shoal.compat.ding.install()

_ran: set[str] = set()
"""Tests that have built one of them."""

for kind in (Slots, shoal.compat.ding.BaseEnvManager):
    count(kind, _ran)


def pytest_configure(config: pytest.Config) -> None:
    for name in ("unittest", "tmp", "envpooltest", "benchmark"):
        config.addinivalue_line("markers", f"{name}: of the peer's own")


def pytest_report_header() -> str:
    return f"DI-engine {ding.__version__}: its environment managers are shoal.compat.ding's"


def pytest_terminal_summary(terminalreporter: object) -> None:
    terminalreporter.write_line(f"{len(_ran)} tests stepped environments of these managers")  # type: ignore[attr-defined]
