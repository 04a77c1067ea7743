"""A collector that steps in its process is closed in the midst of a call."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest

import shoal
from sample_envs import CounterEnv


def idle(obs: np.ndarray) -> np.ndarray:
    return np.zeros(len(obs), np.int64)


@pytest.mark.parametrize("way", ["environment", "handler", "thread"])
def test_the_call_under_way_ends_with_an_error(way: str) -> None:
    steps: list[Any] = []

    def close(*_: object) -> None:
        collector.close()

    class Closing(CounterEnv):
        def step(self, action: Any) -> Any:
            steps.append(action)
            if len(steps) == 5:
                if way == "environment":
                    close()
                elif way == "handler":
                    signal.raise_signal(signal.SIGUSR1)
                else:
                    closer.start()
            return super().step(action)

    closer = threading.Thread(target=close)
    before = signal.signal(signal.SIGUSR1, close)
    try:
        collector = shoal.Collector(Closing, idle, num_envs=2, frames_per_batch=200_000, num_workers=0)
        with pytest.raises(RuntimeError, match="closed"):
            next(collector)
        if way == "thread":
            closer.join()
        with pytest.raises(RuntimeError, match="closed"):
            next(collector)
        assert len(steps) < 200_000
    finally:
        signal.signal(signal.SIGUSR1, before)
