"""A pytest plug-in: `SubprocVecEnv` and `DummyVecEnv` are Shoal's in all of stable_baselines3 while the tests run."""

from __future__ import annotations

import pytest
import stable_baselines3.common.envs
from building import count, put_in_place
from stable_baselines3.common import vec_env

from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv

OURS = {vec_env.DummyVecEnv: DummyVecEnv, vec_env.SubprocVecEnv: SubprocVecEnv}

put_in_place("stable_baselines3", OURS)

_building: set[str] = set()
"""Tests that have built one of them."""

for kind in OURS.values():
    count(kind, _building)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "expensive: of the peer's own")


def pytest_report_header() -> str:
    return f"stable_baselines3 {stable_baselines3.__version__}: SubprocVecEnv and DummyVecEnv are shoal.compat.sb3's"


def pytest_terminal_summary(terminalreporter: object) -> None:
    terminalreporter.write_line(f"{len(_building)} tests built a SubprocVecEnv or DummyVecEnv")  # type: ignore[attr-defined]
