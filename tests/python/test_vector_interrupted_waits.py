"""What a signal's handler raises in a call of environments in workers: the call goes on, and its result is not lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from interrupting import Interrupted


class Alarm(Exception):
    pass


class Slow(gymnasium.Env[Any, Any]):
    """Sleeps in a step where the action is 1."""

    observation_space = gymnasium.spaces.Box(0, 1000, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.rest(0.5 * action)
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, False, False, {}

    def rest(self, seconds: float) -> int:
        time.sleep(seconds)
        return 7


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_any_exception_of_a_handler_leaves_the_call_under_way(alarm: None) -> None:
    with shoal.make_vec(Slow, 2, num_workers=2) as envs:
        envs.reset(seed=0)
        for finish in (envs.step_wait, envs.reset):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Alarm):
                envs.step([1, 1])
            finish()
        assert envs.step([0, 0])[0].tolist() == [[1], [1]]
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            envs.call("rest", 0.5)
        assert envs.call_wait() == (7, 7)


@pytest.mark.parametrize("way", [{}, {"batch_size": 2}], ids=["together", "one by one"])
def test_a_result_that_nobody_got_is_given_again(way: dict[str, Any]) -> None:
    with shoal.make_vec(Slow, 2, num_workers=2, **way) as envs:
        io: Any = envs._io
        envs.reset(seed=0)
        for begin in ("step_async", "step_wait") if not way else ():
            envs._io = Interrupted(io, begin)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                envs.step([0, 0])
            assert envs.step_wait()[0].tolist() == [[1], [1]]
            envs._io = Interrupted(io, begin)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                envs.step([0, 0])
            envs.reset(seed=0)
        for begin in ("reset_async", "reset_wait"):
            envs._io = Interrupted(io, begin)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                envs.reset()
            envs.reset()
        assert envs.step([0, 0])[0].tolist() == [[1], [1]]


@pytest.mark.parametrize("begin", ["request_async", "request_wait"])
def test_answers_that_nobody_got_are_given_again(begin: str) -> None:
    with shoal.make_vec(Slow, 2, num_workers=2) as envs:
        engine: Any = envs._engine
        for finish in (envs.call_wait, envs.reset):
            envs._engine = Interrupted(engine, begin)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                envs.call("rest", 0.0)
            finish()
        envs._engine = engine
        assert envs.call("rest", 0.0) == (7, 7)


def test_what_recv_received_is_given_again() -> None:
    with shoal.make_vec(Slow, 2, num_workers=2, batch_size=2) as envs:
        io: Any = envs._io
        envs.reset(seed=0)
        envs.send([0, 0], [0, 1])
        with pytest.raises(
            gymnasium.error.AlreadyPendingCallError, match="0 and 1 are in flight already; recv.. until they are back"
        ):
            envs.send([0, 0], [0, 1])
        envs._io = Interrupted(io, "recv")  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            envs.recv()
        assert envs.recv(timeout=5)[0].tolist() == [[1], [1]]
        envs.send([0, 0], [0, 1])
        assert envs.recv()[0].tolist() == [[2], [2]]


@pytest.mark.parametrize("way", [{}, {"batch_size": 2}], ids=["together", "one by one"])
def test_dict_actions_may_be_sent_as_one_an_environment(way: dict[str, Any]) -> None:
    class Dicts(Slow):
        action_space: Any = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(5))

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros(1, np.float32), float(action["a"]), False, False, {}

    with shoal.make_vec(Dicts, 2, num_workers=2, **way) as envs:
        envs.reset(seed=0)
        envs.send([{"a": 3}, {"a": 4}], [1, 0])
        _, rewards, _, _, infos = envs.recv()
        assert {int(env): float(reward) for env, reward in zip(infos["env_id"], rewards, strict=True)} == {0: 4, 1: 3}
        with pytest.raises(ValueError, match="env_id"):
            envs.send([{"a": 3}], [1, 0])


def test_ctrl_c_in_the_conversion_of_actions_is_raised() -> None:
    class Action:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    with shoal.make_vec(Slow, 2, num_workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(KeyboardInterrupt):
            envs.step(Action())
        assert envs.step([0, 0])[0].tolist() == [[1], [1]]
