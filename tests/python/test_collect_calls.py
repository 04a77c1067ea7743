"""shoal.Collector: calls that come while another one is under way, and close() in the midst of one."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from collect_policies import CARTPOLE, until, weighted, zeros
from sample_envs import CounterEnv, TellingGatedEnv

pytestmark = pytest.mark.usefixtures("balanced_heap")

WORKERS: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": 2},
    "cohorts": {"num_workers": 2, "cohorts": 2},
    **{mode: {"mode": mode, "num_collectors": 2} for mode in ("multi_sync", "multi_async")},
}
"""Where next() waits for other processes."""
CALLS: dict[str, Callable[[shoal.Collector], Any]] = {
    "next": next,
    "reset": lambda collector: collector.reset(),
    "pause": lambda collector: collector.pause(),
    "resume": lambda collector: collector.resume(),
    "state_dict": lambda collector: collector.state_dict(),
    "load_state_dict": lambda collector: collector.load_state_dict({}),
}


def ones(obs: Any) -> np.ndarray:
    return np.ones(len(obs), np.int64)


class Gate:
    """Environments that wait for it at their first step."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "gate"
        self.env = functools.partial(TellingGatedEnv, self.path)

    def is_waited_for(self) -> bool:
        return self.path.with_name("begun").exists()

    def open(self) -> None:
        self.path.touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def in_handler(gate: Gate) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Has a function called by a signal's handler once the environments wait."""
    before = signal.getsignal(signal.SIGUSR1)
    threads = []

    def call(function: Callable[[], Any]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: function())

        def send() -> None:
            until(gate.is_waited_for)
            os.kill(os.getpid(), signal.SIGUSR1)

        threads.append(threading.Thread(target=send))
        threads[-1].start()

    yield call
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("where", WORKERS)
def test_calls_in_a_handler_are_refused_and_the_one_under_way_goes_on(
    where: str, gate: Gate, in_handler: Callable[[Callable[[], Any]], None]
) -> None:
    told = []

    def handler() -> None:
        for call in CALLS.values():
            with pytest.raises(RuntimeError, match="a call of this collector is under way: next") as refused:
                call(collector)
            told.append(str(refused.value))
        gate.open()

    with shoal.Collector(gate.env, ones, num_envs=4, frames_per_batch=8, **WORKERS[where]) as collector:
        in_handler(handler)
        assert next(collector)["valid"].all()
        assert all(f"{name}() comes from within it" in text for name, text in zip(CALLS, told, strict=True))
        collector.reset()
        assert next(collector)["valid"].all()


@pytest.mark.parametrize("where", WORKERS)
def test_calls_of_another_thread_are_refused_meanwhile(where: str, gate: Gate) -> None:
    got: list[Any] = []
    with shoal.Collector(gate.env, ones, num_envs=4, frames_per_batch=8, **WORKERS[where]) as collector:
        thread = threading.Thread(target=lambda: got.append(next(collector)))
        thread.start()
        until(gate.is_waited_for)
        for call in CALLS.values():
            with pytest.raises(RuntimeError, match="under way: next.*, in another thread"):
                call(collector)
        gate.open()
        thread.join()
        assert got[0]["valid"].all() and next(collector)["valid"].all()


@pytest.mark.parametrize("where", WORKERS)
def test_close_in_a_handler_ends_the_call_under_way(
    where: str, gate: Gate, in_handler: Callable[[Callable[[], Any]], None]
) -> None:
    collector = shoal.Collector(gate.env, ones, num_envs=4, frames_per_batch=8, **WORKERS[where])
    in_handler(lambda: (collector.close(), gate.open()))
    with pytest.raises(RuntimeError, match=r"was closed while next\(\) was under way"):
        next(collector)
    for call in CALLS.values():
        with pytest.raises(RuntimeError, match="this collector is closed"):
            call(collector)
    collector.close()


@pytest.mark.parametrize("where", WORKERS)
def test_close_in_another_thread_ends_the_call_under_way(where: str, gate: Gate) -> None:
    collector = shoal.Collector(gate.env, ones, num_envs=4, frames_per_batch=8, **WORKERS[where])

    def close() -> None:
        until(gate.is_waited_for)
        threading.Timer(0.2, gate.open).start()
        collector.close()

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(RuntimeError, match=r"was closed while next\(\) was under way"):
        next(collector)
    thread.join()
    with pytest.raises(RuntimeError, match="this collector is closed"):
        next(collector)


@pytest.mark.parametrize("env", [CounterEnv, CARTPOLE])
def test_what_the_policy_calls_is_refused_and_its_close_ends_the_batch(env: Any) -> None:
    asked = []

    def policy(obs: np.ndarray) -> np.ndarray:
        asked.append(len(obs))
        if len(asked) == 2:
            for call in CALLS.values():
                with pytest.raises(RuntimeError, match=r"under way: next\(\).*comes from within it.*policy"):
                    call(collector)
        if len(asked) == 7:
            collector.close()
        return zeros(obs)

    collector = shoal.Collector(env, policy, num_envs=2, frames_per_batch=8, num_workers=0)
    assert next(collector)["valid"].all()
    with pytest.raises(RuntimeError, match=r"was closed while next\(\) was under way"):
        next(collector)
    assert len(asked) == 7


@pytest.mark.parametrize("way", ["environment", "handler", "thread"])
def test_a_close_amid_the_steps_of_this_process_ends_the_call_under_way(way: str) -> None:
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
        collector = shoal.Collector(Closing, zeros, num_envs=2, frames_per_batch=200_000, num_workers=0)
        with pytest.raises(RuntimeError, match="closed"):
            next(collector)
        if way == "thread":
            closer.join()
        with pytest.raises(RuntimeError, match="closed"):
            next(collector)
        assert len(steps) < 200_000
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("where", ["multi_sync", "multi_async"])
def test_weights_may_be_updated_while_a_batch_is_waited_for(
    where: str, gate: Gate, in_handler: Callable[[Callable[[], Any]], None]
) -> None:
    policy = weighted(1)
    policy.forward = ones  # type: ignore[method-assign]
    versions = []

    def handler() -> None:
        versions.extend([collector.update_weights(weighted(2).state_dict()), collector.update_weights()])
        gate.open()

    with shoal.Collector(gate.env, policy, num_envs=4, frames_per_batch=8, **WORKERS[where]) as collector:
        in_handler(handler)
        assert next(collector)["valid"].all() and versions == [1, 2]
        until(lambda: bool((next(collector)["policy_version"] == 2).all()))


def test_weights_of_a_network_in_this_process_are_not_written_while_it_computes(
    gate: Gate, in_handler: Callable[[Callable[[], Any]], None]
) -> None:
    def handler() -> None:
        with pytest.raises(RuntimeError, match="a call of this collector is under way: next"):
            collector.update_weights(weights)
        gate.open()

    with shoal.Collector(gate.env, "sb3", num_envs=2, frames_per_batch=64, num_workers=1, seed=1) as collector:
        weights = collector.state_dict()["source"]["groups"][0]["actor"]["weights"]
        in_handler(handler)
        next(collector)
        assert collector.update_weights(weights) == 1
