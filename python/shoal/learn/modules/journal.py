"""What a run says of itself while it goes on. Threads: the run writes, any number of others read."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any

__all__ = ["Journal"]

_MAX_RECORDS = 100_000
"""The oldest go first when nobody polls."""


class Journal:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[tuple[int, dict[str, float]]] = deque(maxlen=_MAX_RECORDS)
        names = "loss policy_loss value_loss entropy grad_norm learning_rate collect_seconds update_seconds"
        counts = "step total_steps iteration episodes eval_step best_step stale_steps lost_rollouts"
        nothing = "ep_return_mean ep_length_mean approx_kl clip_fraction explained_variance clip_range policy_lag"
        others = "q_value exploration temperature updates splits_update steps_cut collectors"  # of DQN, SAC, ranks, listeners
        self._status: dict[str, Any] = {
            "phase": "ready",
            "resume": "none",
            **dict.fromkeys(counts.split(), 0),
            **dict.fromkeys(("seconds", "steps_per_second", *names.split()), 0.0),
            **dict.fromkeys((*nothing.split(), *others.split(), "eval_return_mean", "best_return_mean"), None),
        }

    def update(self, **values: Any) -> None:
        with self._lock:
            self._status |= values

    def status(self) -> dict[str, Any]:
        """As Trainer.status() describes it."""
        with self._lock:
            status = dict(self._status)
        rate = status["steps_per_second"]
        left = max(0, status["total_steps"] - status["step"]) / rate if rate > 0 else None
        status = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in status.items()}
        return status | {"seconds_left": left}

    def add(self, step: int, values: dict[str, float]) -> None:
        with self._lock:
            self._records.append((step, values))

    def poll(self) -> list[tuple[int, dict[str, float]]]:
        """What was added since the last call."""
        with self._lock:
            taken = list(self._records)
            self._records.clear()
        return taken
