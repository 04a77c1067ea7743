"""kill -9 of collectors and of the zygote they were forked from, at random moments, while weights are updated: the run goes on
with every row, or ends with one typed error; weights and batches are whole; nothing of the dead stays."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shoal
from shoal._core import ipc

LONG = 60.0


class Equal:
    """A policy of two large arrays that were always published as equals: its `value` is 0 unless weights are torn."""

    def __init__(self) -> None:
        self.weights = {"first": np.zeros(50_000), "last": np.zeros(50_000)}

    def state_dict(self) -> dict[str, np.ndarray]:
        return self.weights

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.weights = dict(state)

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, last = self.weights["first"], self.weights["last"]
        torn = float(np.ptp(first) + np.abs(first - last).sum())
        return np.zeros(len(obs), np.int64), np.full(len(obs), first[0]), np.full(len(obs), torn)


@contextlib.contextmanager
def killing(collector: shoal.Collector, choose: random.Random, often: bool) -> Iterator[list[int]]:
    """Kills collectors, and now and then their zygote, at random moments; gives the list of who was killed."""
    killed: list[int] = []
    ended = threading.Event()
    victims = [entry["pid"] for entry in collector.stats()["collectors"]]

    def kill() -> None:
        while not ended.wait(choose.uniform(0.0, 0.3)):
            zygotes = [zygote["pid"] for zygote in shoal.process.zygotes() if zygote["workers"]]
            pool = zygotes if zygotes and choose.random() < 0.2 else victims
            with contextlib.suppress(ProcessLookupError):
                victim = choose.choice(pool)
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)
            if not often:
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield victims if often else killed
    finally:
        ended.set()
        thread.join()


def check_whole(batch: dict[str, Any]) -> None:
    assert batch["valid"].all() and not batch["value"].any()
    assert (batch["log_prob"] == batch["policy_version"]).all()
    assert len(set(batch["policy_version"].flat)) <= 2  # of a batch's collectors, each has one


def play(mode: str, on_fault: Any, seed: int, **more: Any) -> shoal.Collector:
    return shoal.Collector(
        "CartPole-v1", Equal(), num_envs=4, frames_per_batch=80, mode=mode, num_collectors=2, seed=seed,
        on_fault=on_fault, **more,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def whole_heap() -> Iterator[None]:
    ipc.sweep()
    before = ipc.stats()["blocks"]
    yield
    gc.collect()
    ipc.sweep()
    assert ipc.check() == [] and ipc.stats()["blocks"] <= before


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["multi_sync", "multi_async"])
def test_with_restart_a_run_goes_on_with_every_row(rounds: int, mode: str) -> None:
    choose = random.Random(1)
    policy = shoal.FaultPolicy("restart", max_restarts=10**6, backoff=0.0)
    with play(mode, policy, 1) as collector:
        next(collector)
        with killing(collector, choose, often=True) as victims:
            restarts = version = 0
            while restarts < 2 * rounds:
                version += 1
                weights = {name: np.full(50_000, float(version)) for name in ("first", "last")}
                assert collector.update_weights(weights) == version
                begin = time.monotonic()
                check_whole(next(collector))
                assert time.monotonic() - begin < LONG  # nothing hangs
                entries = collector.stats()["collectors"]
                victims[:] = [entry["pid"] for entry in entries]
                restarts = sum(entry["restarts"] for entry in entries)
        collector.pause()
        stats = collector.stats()
    made = sum(entry["frames"] for entry in stats["collectors"])
    assert made == stats["frames"] + stats["lost_with_collectors"] + 80 * stats.get("pending", 0)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["multi_sync", "multi_async"])
def test_without_it_there_is_one_typed_error_and_a_reset_helps(rounds: int, mode: str) -> None:
    choose = random.Random(2)
    with play(mode, "raise", 2) as collector:
        for _ in range(rounds):
            with killing(collector, choose, often=False), pytest.raises(shoal.WorkerDied, match="signal 9|zygote"):
                while True:
                    check_whole(next(collector))
            collector.reset(seed=3)
            check_whole(next(collector))
