"""A pytest plug-in: `gymnasium.vector.AsyncVectorEnv` and `SyncVectorEnv` are Shoal's while the tests run."""

from __future__ import annotations

import gymnasium

from shoal.compat.gymnasium import AsyncVectorEnv, SyncVectorEnv

gymnasium.vector.AsyncVectorEnv = AsyncVectorEnv
gymnasium.vector.SyncVectorEnv = SyncVectorEnv


def pytest_report_header() -> str:
    return "gymnasium.vector.AsyncVectorEnv and SyncVectorEnv: shoal.compat.gymnasium's"
