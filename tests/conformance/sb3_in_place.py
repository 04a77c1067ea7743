"""A pytest plug-in: `SubprocVecEnv` and `DummyVecEnv` are Shoal's in all of stable_baselines3 while the tests run."""

from __future__ import annotations

import sys

import pytest
import stable_baselines3.common.envs
from stable_baselines3.common import vec_env

from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv

OURS = {vec_env.DummyVecEnv: DummyVecEnv, vec_env.SubprocVecEnv: SubprocVecEnv}

for module in [module for name, module in sys.modules.items() if name.startswith("stable_baselines3")]:
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value in OURS:
            setattr(module, name, OURS[value])

_building: set[str] = set()
"""Tests that have built one of them."""

_running = ""


def _count(kind: type) -> None:
    init = kind.__init__

    def counted(self: object, *arguments: object, **more: object) -> None:
        if _running:
            _building.add(_running)
        init(self, *arguments, **more)

    kind.__init__ = counted  # type: ignore[misc]


for kind in OURS.values():
    _count(kind)


def pytest_runtest_logstart(nodeid: str) -> None:
    global _running
    _running = nodeid


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "expensive: of the peer's own")


def pytest_report_header() -> str:
    return f"stable_baselines3 {stable_baselines3.__version__}: SubprocVecEnv and DummyVecEnv are shoal.compat.sb3's"


def pytest_terminal_summary(terminalreporter: object) -> None:
    terminalreporter.write_line(f"{len(_building)} tests built a SubprocVecEnv or DummyVecEnv")  # type: ignore[attr-defined]
