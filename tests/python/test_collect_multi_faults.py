"""shoal.Collector with collectors in processes: those that die, raise, or take too long."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from collect_policies import (
    CARTPOLE,
    LONG,
    MULTI,
    batches,
    until,
    weighted,
    zeros,
)
from same import assert_same
from sample_envs import CounterEnv, FaultyEnv, GatedEnv
from shoal.collect import processes
from shoal.collect.processes import Processes

pytestmark = pytest.mark.usefixtures("balanced_heap")


@pytest.mark.parametrize("mode", MULTI)
def test_a_killed_collector_is_one_typed_error_and_a_reset_replaces_it(mode: str) -> None:
    with shoal.Collector(
        CARTPOLE, zeros, num_envs=4, frames_per_batch=40, mode=mode, num_collectors=2, seed=1
    ) as collector:
        next(collector)
        victim = collector.stats()["collectors"][1]["pid"]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(
            shoal.WorkerDied, match=r"^collector 1 \(pid \d+, environments 2 to 3\) ended with .*SIGKILL"
        ) as caught:
            while True:
                next(collector)
        assert caught.value.pid == victim and caught.value.env_indices == range(2, 4)
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            next(collector)
        collector.reset(seed=3)
        seen = set()
        while seen != {0, 1, 2, 3}:
            batch = next(collector)
            assert batch["valid"].all()
            seen.update(batch["env_id"][0].tolist())
        assert victim not in {entry["pid"] for entry in collector.stats()["collectors"]}


@pytest.mark.parametrize("mode", MULTI)
def test_with_restart_another_takes_its_place_and_every_row_comes(mode: str) -> None:
    policy = weighted(0)
    with shoal.Collector(
        "CartPole-v1", policy, num_envs=4, frames_per_batch=40, total_frames=12_000, mode=mode, num_collectors=2, seed=1,
        on_fault=shoal.FaultPolicy("restart", max_restarts=10, backoff=0.01),
    ) as collector:  # fmt: skip
        rows = killed = 0
        for i, batch in enumerate(collector):
            rows += batch["reward"].numel()
            assert batch["valid"].all() and (batch["log_prob"] == batch["policy_version"]).all()
            if i == 1:
                collector.update_weights(weighted(1).state_dict())
            entries = collector.stats()["collectors"]
            if i > 1 and killed < 3 and sum(entry["restarts"] for entry in entries) == killed:
                os.kill(entries[killed % 2]["pid"], signal.SIGKILL)
                killed += 1
        stats = collector.stats()
    assert rows == 12_000 == stats["frames"]
    assert sum(entry["restarts"] for entry in stats["collectors"]) == killed >= 1
    assert sum(entry["frames"] for entry in stats["collectors"]) == 12_000 + stats["lost_with_collectors"]
    assert stats["policy_version"] == 1


def check_episodes(found: list[dict[str, Any]], num_envs: int) -> None:
    """Each environment's episodes have numbers of their own, which rise."""
    for env in range(num_envs):
        own = [(batch, np.flatnonzero(batch["env_id"][0] == env)) for batch in found]
        rows = {
            name: np.concatenate([batch[name][:, at[0]] for batch, at in own if len(at)])
            for name in ("is_first", "episode_id")
        }
        assert rows["is_first"][0] and (rows["episode_id"] % num_envs == env).all()
        steps = np.diff(rows["episode_id"])
        assert (steps[rows["is_first"][1:]] > 0).all() and not steps[~rows["is_first"][1:]].any()


@pytest.mark.parametrize("mode", MULTI)
def test_episodes_keep_their_numbers_and_counts_where_collectors_are_replaced(mode: str) -> None:
    with shoal.Collector(
        CounterEnv, zeros, num_envs=4, frames_per_batch=40, total_frames=800, mode=mode, num_collectors=2, seed=1,
        on_fault=shoal.FaultPolicy("restart", max_restarts=10, backoff=0.0),
    ) as collector:  # fmt: skip
        found = [next(collector)]
        collector.pause()
        os.kill(collector.stats()["collectors"][1]["pid"], signal.SIGKILL)
        collector.resume()
        found += list(collector)
        stats = collector.stats()
    assert [entry["restarts"] for entry in stats["collectors"]] == [0, 1]
    check_episodes(found, 4)
    assert stats["episodes"] == sum(int(batch["terminated"].sum()) for batch in found)


def test_episodes_keep_their_numbers_over_a_failure_and_a_reset() -> None:
    with shoal.Collector(
        CounterEnv, zeros, num_envs=4, frames_per_batch=40, mode="multi_sync", num_collectors=2, seed=1
    ) as collector:
        found = [next(collector)]
        os.kill(collector.stats()["collectors"][1]["pid"], signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied):
            next(collector)
        collector.reset(seed=2)
        found += [next(collector) for _ in range(2)]
    check_episodes(found, 4)


@pytest.mark.parametrize("mode", MULTI)
def test_a_killed_zygote_is_one_fault(mode: str) -> None:
    def zygote() -> int:
        (found,) = [
            z["pid"] for z in shoal.process.zygotes() if "shoal.collect.worker" in z["preload"] and z["workers"]
        ]
        return int(found)

    def restarts(collector: shoal.Collector) -> list[int]:
        return [entry["restarts"] for entry in collector.stats()["collectors"]]

    arguments = {"num_envs": 4, "frames_per_batch": 40, "mode": mode, "num_collectors": 4, "num_workers": 0}
    with shoal.Collector(
        CARTPOLE, zeros, on_fault=shoal.FaultPolicy("restart", max_restarts=1), **arguments
    ) as collector:
        next(collector)
        os.kill(zygote(), signal.SIGKILL)
        until(lambda: next(collector)["valid"].all() and restarts(collector) == [1] * 4)
    with shoal.Collector(CARTPOLE, zeros, **arguments) as collector:
        next(collector)
        os.kill(zygote(), signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied, match="zygote"):
            while True:
                next(collector)


def test_more_faults_than_are_forgiven_end_it_with_all_of_their_causes() -> None:
    with shoal.Collector(
        functools.partial(FaultyEnv, step=LookupError("in the environment")), zeros, frames_per_batch=2,
        mode="multi_sync", on_fault=shoal.FaultPolicy("restart", max_restarts=2, backoff=0.0),
    ) as collector:  # fmt: skip
        with pytest.raises(shoal.TooManyFaults, match="3 faults of collectors") as caught:
            next(collector)
        assert str(caught.value).count("in the environment") == 3
        assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize("mode", MULTI)
def test_what_environments_and_policies_raise_is_raised(mode: str) -> None:
    arguments = {"frames_per_batch": 2, "mode": mode}
    with pytest.raises(LookupError, match="in the environment") as caught:
        batches(functools.partial(FaultyEnv, step=LookupError("in the environment")), zeros, **arguments)
    assert "Traceback of" in str(caught.value.__cause__)

    def policy(obs: np.ndarray) -> np.ndarray:
        raise LookupError("no action")

    with pytest.raises(LookupError, match="no action"):
        batches(CounterEnv, policy, **arguments)
    with pytest.raises(LookupError, match="not built"):

        def unbuilt() -> Any:
            raise LookupError("not built")

        batches(unbuilt, zeros, **arguments)
    with pytest.raises(ValueError, match=r"gave action of shape \(1, 1\)"):
        batches(CounterEnv, lambda obs: np.zeros((1, 1), int), **arguments)


@pytest.mark.parametrize("mode", MULTI)
def test_a_collector_that_takes_too_long_is_an_error(mode: str, tmp_path: Path) -> None:
    with shoal.Collector(
        functools.partial(GatedEnv, tmp_path / "gate"), lambda obs: np.ones(len(obs), np.int64), frames_per_batch=2,
        timeout=0.3, mode=mode,
    ) as collector:  # fmt: skip
        with pytest.raises(TimeoutError, match="collector 0 took no step"):
            next(collector)
        (tmp_path / "gate").touch()
        collector.reset()
        assert next(collector)["valid"].all()


def test_collectors_end_with_their_program_however_that_ends() -> None:
    program = """
import os, sys, time
import numpy as np
import shoal
collector = shoal.Collector("CartPole-v1", lambda obs: np.zeros(len(obs), int), num_envs=4, frames_per_batch=400,
                            mode="multi_async", num_collectors=2)
for batch in collector:
    print(*[entry["pid"] for entry in collector.stats()["collectors"]], flush=True)
"""
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(number)
        _, errors = process.communicate(timeout=LONG)
        assert process.returncode != 0 and ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
        until(lambda pids=pids: not any(Path(f"/proc/{pid}").exists() for pid in pids))


class SlowEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)


class Interrupted(Exception):
    """As KeyboardInterrupt, but none that pytest takes for its own."""


def interrupt(*_: Any) -> None:
    raise Interrupted


@contextlib.contextmanager
def alarms_that_interrupt() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    with alarms_that_interrupt():
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with pytest.raises(Interrupted):
            yield


@pytest.mark.parametrize("mode", MULTI)
def test_who_is_interrupted_and_asks_again_gets_every_row_once(mode: str) -> None:
    seen: dict[int, list[float]] = {first: [] for first in (0, 2)}

    def take(batch: dict[str, Any]) -> None:
        assert batch["valid"].all()
        for column, env in enumerate(batch["env_id"][0].tolist()):
            if env in seen:
                seen[env] += batch["obs"][:, column, 1].tolist()

    with shoal.Collector(
        SlowEnv, zeros, num_envs=4, frames_per_batch=80, mode=mode, num_collectors=2, seed=1
    ) as collector:
        take(next(collector))
        for _ in range(2):
            if not collector._source.pending:
                with interrupted_after(0.1):
                    for _ in range(100):
                        take(next(collector))
            take(next(collector))
        saved = collector.state_dict()
        take(next(collector))
        assert collector.stats()["lost_with_collectors"] == 0
    for steps in seen.values():
        assert len(steps) >= 20 and steps == [float(step % 3) for step in range(len(steps))]
    with shoal.Collector(SlowEnv, zeros, num_envs=4, frames_per_batch=80, mode=mode, num_collectors=2, seed=2) as other:
        other.load_state_dict(saved)
        assert next(other)["valid"].all()


def test_an_order_that_was_interrupted_once_it_was_sent_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector wrote the rows after it into the batch that was handed out."""
    order = Processes.order

    def and_interrupt(*args: Any, **kwargs: Any) -> int:
        order(*args, **kwargs)
        raise Interrupted

    with shoal.Collector(
        functools.partial(CounterEnv, 100), zeros, num_envs=2, frames_per_batch=8, mode="multi_sync", num_collectors=2
    ) as collector:
        next(collector)
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(Processes, "order", and_interrupt)
                with pytest.raises(Interrupted):
                    next(collector)
        found = [next(collector)["obs"][:, :, 1].tolist() for _ in range(2)]
    assert found == [[[float(t)] * 2 for t in range(first, first + 4)] for first in (4, 8)]


@pytest.mark.parametrize("mode", MULTI)
def test_signals_at_any_moment_lose_no_order_and_no_report(mode: str) -> None:
    """A report that was taken out of the queue was lost, and an order that was never sent was waited for without end."""
    moments = random.Random(1)
    handed = 0
    with (
        alarms_that_interrupt(),
        shoal.Collector(
            "CartPole-v1",
            zeros,
            num_envs=4,
            frames_per_batch=32,
            total_frames=3200,
            mode=mode,
            num_collectors=2,
            seed=1,
        ) as collector,
    ):
        next(collector)
        for _ in range(300):
            with contextlib.suppress(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-4, 4e-3))
                handed += next(collector)["reward"].size
                signal.setitimer(signal.ITIMER_REAL, 0)
            if collector.frames > 2400:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        for batch in collector:
            assert batch["valid"].all()
            handed += batch["reward"].size
        assert collector.frames == 3200 and 0 < handed < 3200


@pytest.mark.parametrize("mode", MULTI)
@pytest.mark.parametrize("interrupted", ["_tell", "_send_on", "loads"])
def test_what_was_interrupted_before_it_was_done_is_done_by_the_next_call(
    mode: str, interrupted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shoal.Collector(
        CounterEnv, zeros, num_envs=2, frames_per_batch=8, total_frames=80, mode=mode, num_collectors=2
    ) as collector:
        rows = next(collector)["reward"].size
        with monkeypatch.context() as patched:
            where = processes.pickle if interrupted == "loads" else Processes
            patched.setattr(where, interrupted, interrupt)
            with pytest.raises(Interrupted):
                for _ in range(3):
                    rows += next(collector)["reward"].size
        for batch in collector:
            assert batch["valid"].all()
            rows += batch["reward"].size
        assert collector.frames == 80 and 80 - 8 <= rows <= 80


def test_a_batch_that_was_interrupted_is_in_the_state() -> None:
    make = functools.partial(
        shoal.Collector, SlowEnv, zeros, num_envs=4, frames_per_batch=40, mode="multi_sync", num_collectors=2
    )
    with make(seed=1) as collector:
        next(collector)
        with interrupted_after(0.1):
            next(collector)
        saved = collector.state_dict()
        expected = [next(collector) for _ in range(2)]
    with make(seed=2) as other:
        other.load_state_dict(saved)
        assert_same([next(other) for _ in range(2)], expected)


def test_a_state_that_was_interrupted_may_be_asked_for_again() -> None:
    with shoal.Collector(
        SlowEnv, zeros, num_envs=2, frames_per_batch=80, mode="multi_async", num_collectors=2, seed=1
    ) as collector:
        next(collector)
        with interrupted_after(0.1):
            collector.state_dict()
        assert collector.state_dict()["source"]["collectors"]
        assert next(collector)["valid"].all()


@pytest.mark.parametrize("call", ["pause", "state_dict", "load_state_dict"])
def test_batches_go_on_where_a_wait_for_them_was_interrupted(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collectors stayed paused, and the batch after the last one was waited for without end."""
    with shoal.Collector(
        CounterEnv, zeros, num_envs=2, frames_per_batch=8, total_frames=80, mode="multi_async", num_collectors=2
    ) as collector:
        arguments = [collector.state_dict()] if call == "load_state_dict" else []
        next(collector)
        with monkeypatch.context() as patched:
            patched.setattr(Processes, "next_report", interrupt)
            with pytest.raises(Interrupted):
                getattr(collector, call)(*arguments)
        assert sum(batch["reward"].size for batch in collector) == 72


def test_a_reset_that_was_interrupted_while_it_started_a_collector_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector that was being started never learnt where the newest weights are."""
    with shoal.Collector(
        CARTPOLE, weighted(0), num_envs=2, frames_per_batch=4, mode="multi_sync", num_collectors=2, seed=1
    ) as collector:
        next(collector)
        collector.update_weights(weighted(1).state_dict())
        os.kill(collector.stats()["collectors"][1]["pid"], signal.SIGKILL)
        with pytest.raises(shoal.WorkerDied):
            next(collector)
        for ask_for_a_batch in (False, True):
            with monkeypatch.context() as patched:
                patched.setattr(Processes, "_hello", interrupt)
                with pytest.raises(Interrupted):
                    collector.reset(seed=1)
            if ask_for_a_batch:
                with pytest.raises(RuntimeError, match=r"has not been started again.*call reset\(\) first"):
                    next(collector)
            collector.reset(seed=1)
            batch = next(collector)
            assert (batch["log_prob"] == 1).all() and (batch["policy_version"] == 1).all()
            os.kill(collector.stats()["collectors"][0]["pid"], signal.SIGKILL)
            with pytest.raises(shoal.WorkerDied):
                next(collector)


class Unsaved(CounterEnv):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize("mode", MULTI)
def test_a_state_that_cannot_be_saved_costs_no_collector(mode: str) -> None:
    with shoal.Collector(
        Unsaved, zeros, num_envs=2, frames_per_batch=8, total_frames=80, mode=mode, num_collectors=2
    ) as collector:
        next(collector)
        before = [entry["pid"] for entry in collector.stats()["collectors"]]
        with pytest.raises(TypeError, match="lock"):
            collector.state_dict()
        assert sum(batch["reward"].size for batch in collector) == 72
        assert [entry["pid"] for entry in collector.stats()["collectors"]] == before


@pytest.mark.parametrize("mode", MULTI)
def test_a_state_that_cannot_be_loaded_costs_no_collector(mode: str) -> None:
    arguments = {"num_envs": 2, "frames_per_batch": 8, "mode": mode, "num_collectors": 2}
    with shoal.Collector("shoal/Acrobot-v1", zeros, **arguments) as other:
        next(other)
        saved = other.state_dict()
    with shoal.Collector(CARTPOLE, weighted(0), **arguments) as collector:
        collector.update_weights(weighted(1).state_dict())
        next(collector)
        before = [entry["pid"] for entry in collector.stats()["collectors"]]
        with pytest.raises(ValueError):
            collector.load_state_dict(saved)
        with pytest.raises(RuntimeError, match=r"call reset\(\) first"):
            for _ in range(10):  # "multi_async" has some ready
                next(collector)
        collector.reset(seed=1)
        until(lambda: bool((next(collector)["log_prob"] == 1).all()))
        assert [entry["pid"] for entry in collector.stats()["collectors"]] == before


@pytest.mark.parametrize("mode", MULTI)
def test_a_closed_collector_stays_closed(mode: str) -> None:
    collector = shoal.Collector(CARTPOLE, zeros, num_envs=2, frames_per_batch=8, mode=mode, num_collectors=2)
    collector.close()
    for use in (collector.reset, lambda: next(collector)):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    assert not collector.stats()["collectors"]
