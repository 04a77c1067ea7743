"""How often the crash tests kill: `--crash-rounds 100` for the figure in the README, a few by default."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    default = int(os.environ.get("SHOAL_CRASH_ROUNDS", "5"))
    parser.addoption("--crash-rounds", type=int, default=default, help="kills of each kind (default: %(default)s)")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    value = request.config.getoption("--crash-rounds", default=None)
    return int(os.environ.get("SHOAL_CRASH_ROUNDS", "5")) if value is None else int(value)
