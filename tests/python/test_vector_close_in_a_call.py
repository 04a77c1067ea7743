"""close() in the midst of a call: from the handler of a signal, and from another thread. And calls from within a call."""

from __future__ import annotations

import contextlib
import functools
import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError

import shoal
from sample_envs import CounterEnv, GatedEnv, GatedResetEnv

WAYS: dict[str, dict[str, Any]] = {
    "process": {"num_workers": 2},
    "serial": {"backend": "serial"},
    "async process": {"num_workers": 2, "batch_size": 2},
    "async serial": {"backend": "serial", "batch_size": 2},
}
IN_PROCESSES = [name for name in WAYS if "process" in name]


class SignalledEnv(CounterEnv):
    """In this process: its step at action 1 is interrupted by SIGUSR1, and goes on."""

    def step(self, action: Any) -> Any:
        if action == 1:
            signal.raise_signal(signal.SIGUSR1)
        return super().step(action)


class FailingEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        raise ValueError("no step")


class InterruptedEnv(CounterEnv):
    def interrupt(self) -> None:
        signal.raise_signal(signal.SIGINT)

    def step(self, action: Any) -> Any:
        if action == 1:
            self.interrupt()
        return super().step(action)


def make(env: Callable[[], Any], way: str) -> Any:
    envs = shoal.make_vec([env, env], **WAYS[way])
    envs.reset(seed=0)
    return envs


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def handled() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Calls a function in a handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, lambda *_: function()) and None
    signal.signal(signal.SIGUSR1, before)


def signal_soon() -> None:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()


@pytest.mark.parametrize("way", IN_PROCESSES)
@pytest.mark.parametrize("call", ["step", "reset", "call"])
def test_a_handler_of_a_signal_closes_what_is_waited_for(way: str, call: str, gate: Path, handled: Any) -> None:
    envs = make(functools.partial(GatedResetEnv, gate), way)
    handled(envs.close)
    signal_soon()
    calls = {
        "step": lambda: envs.step(np.ones(2, np.int64)),
        "reset": envs.reset,
        "call": lambda: envs.call("pass_gate"),
    }
    with pytest.raises(RuntimeError, match="closed while a call"):
        calls[call]()
    assert envs.closed
    with pytest.raises(Exception, match="close"):
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_that_closes_may_end_the_program(way: str, gate: Path, handled: Any) -> None:
    envs = make(functools.partial(GatedEnv, gate) if way in IN_PROCESSES else SignalledEnv, way)

    def end() -> None:
        envs.close()
        raise SystemExit(3)

    handled(end)
    if way in IN_PROCESSES:
        signal_soon()
    with pytest.raises(SystemExit):
        envs.step(np.ones(2, np.int64))
    assert envs.closed


@pytest.mark.parametrize("way", [name for name in WAYS if name not in IN_PROCESSES])
def test_environments_of_this_process_may_be_closed_in_their_own_step(way: str, handled: Any) -> None:
    envs = make(SignalledEnv, way)
    handled(envs.close)
    with contextlib.suppress(ClosedEnvironmentError):  # or with its result
        envs.step(np.ones(2, np.int64))
    assert envs.closed
    with pytest.raises(ClosedEnvironmentError):
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("way", IN_PROCESSES)
def test_another_thread_closes_what_is_waited_for(way: str, gate: Path) -> None:
    envs = make(functools.partial(GatedEnv, gate), way)
    raised: list[BaseException] = []

    def step() -> None:
        try:
            envs.step(np.ones(2, np.int64))
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    while not any(worker["state"] == "stepping" for worker in envs.health()):
        time.sleep(0.001)
    envs.close()
    thread.join()
    assert "close" in str(raised[0])


@pytest.mark.parametrize("way", IN_PROCESSES)
def test_calls_from_within_a_call_and_from_another_thread_are_refused(way: str, gate: Path, handled: Any) -> None:
    envs = make(functools.partial(GatedEnv, gate), way)
    refused: list[str] = []

    def ask() -> None:
        for call in (envs.recv if "async" in way else envs.step_wait, lambda: envs.call("pass_gate")):
            try:
                call()
            except Exception as error:
                refused.append(str(error))
        gate.touch()

    handled(lambda: [ask(), thread.start()] and None)
    thread = threading.Thread(target=ask)
    signal_soon()
    envs.step(np.ones(2, np.int64))
    thread.join()
    assert len(refused) >= 2 and any("under way" in text for text in refused), refused
    envs.step(np.zeros(2, np.int64))
    envs.close()


def test_another_thread_closes_between_two_of_many_steps() -> None:
    envs = make(CounterEnv, "serial")
    closer = threading.Timer(0.05, envs.close)
    closer.start()
    with pytest.raises((RuntimeError, ClosedEnvironmentError), match="close"):
        while True:
            envs.step([0, 0])
    closer.join()
    assert envs.closed


@pytest.mark.parametrize("way", ["serial", "async serial"])
def test_the_health_of_environments_in_this_process_is_known(way: str) -> None:
    seen: list[Any] = []

    class Asking(CounterEnv):
        def step(self, action: Any) -> Any:
            seen.extend(worker["state"] for worker in envs.health())
            return super().step(action)

    envs = make(Asking, way)
    assert {worker["state"] for worker in envs.health()} == {"idle"}
    envs.step([0, 0]) if way == "serial" else (envs.send([0, 0]), envs.recv())
    assert set(seen) == {"stepping"}
    envs.close()
    assert [(worker["state"], worker["pid"]) for worker in envs.health()] == [("closed", None)]


def test_ctrl_c_in_an_environment_of_this_process_asks_for_a_reset() -> None:
    envs = make(InterruptedEnv, "serial")
    with pytest.raises(KeyboardInterrupt):
        envs.step(np.array([0, 1]))
    with pytest.raises(Exception, match=r"reset\(\)"):
        envs.step(np.zeros(2, np.int64))
    first, _ = envs.reset(seed=0)
    observations, *_ = envs.step(np.zeros(2, np.int64))
    assert (observations != first).any()
    envs.close()


def test_ctrl_c_in_a_call_of_this_process_changes_nothing() -> None:
    envs = make(InterruptedEnv, "serial")
    with pytest.raises(KeyboardInterrupt):
        envs.call("interrupt")
    envs.step(np.zeros(2, np.int64))
    envs.close()


@pytest.mark.parametrize("way", [name for name in WAYS if name not in IN_PROCESSES])
def test_environments_that_failed_together_are_let_go(way: str) -> None:
    envs = make(FailingEnv, way)
    with pytest.raises(ValueError, match="no step"):
        envs.step(np.ones(2, np.int64))
    gone = weakref.ref(envs)
    del envs
    gc.collect()
    assert gone() is None
