"""Ctrl-C in the code of an environment of this process: its call ends, and a reset of all goes on."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal

COUNT, INTERRUPT, EXIT = range(3)
WAYS: dict[str, dict[str, Any]] = {
    "serial": {},
    "whole": {"batch_size": 4},
    "arrival": {"batch_size": 2},
    "cohorts": {"cohorts": 2},
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


class Counting(gymnasium.Env[Any, Any]):
    """Counts its steps. Action INTERRUPT is Ctrl-C in the midst of one."""

    observation_space = gymnasium.spaces.Box(0, 1000, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    stepped = 0
    """By all of them."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == INTERRUPT:
            raise KeyboardInterrupt
        if action == EXIT:
            raise SystemExit(3)
        time.sleep(0.0001)  # short steps are taken several at once
        Counting.stepped += 1
        self.steps += 1
        # More than an info that has a place beside its row.
        return np.full(1, self.steps, np.float32), 1.0, False, False, {"text": "x" * 100_000}


def act(envs: Any, actions: list[int]) -> Any:
    """A step of all; of those that are stepped one by one, its last batch."""
    if not hasattr(envs, "discard"):
        return envs.step(actions)
    envs.send(actions, range(4))
    results = [envs.recv() for _ in range(4 // envs.batch_size)]
    return results[-1]


@ways
def test_it_is_raised_at_once_and_a_reset_goes_on(way: dict[str, Any]) -> None:
    with shoal.make_vec(Counting, 4, num_workers=0, **way) as envs:
        for _ in range(3):
            envs.reset(seed=0)
            act(envs, [COUNT] * 4)
            before = Counting.stepped
            with pytest.raises(KeyboardInterrupt):
                act(envs, [COUNT, INTERRUPT, COUNT, COUNT])
            assert Counting.stepped == before + 1, "those after it were not stepped"
            with pytest.raises(RuntimeError, match=r"interrupted in the midst of an environment; reset\(\) all"):
                act(envs, [COUNT] * 4)
        assert envs.reset(seed=0)[0].tolist() == [[0]] * 4
        for steps in range(1, 4):
            observations, rewards, _, _, infos = act(envs, [COUNT] * 4)
            assert observations.tolist() == [[steps]] * len(rewards)
            assert [len(text) for text in infos["text"]] == [100_000] * len(rewards)
        assert envs.in_flight == 0


@ways
def test_another_comes_as_what_was_in_flight_is_thrown_away(way: dict[str, Any]) -> None:
    with shoal.make_vec(Counting, 4, num_workers=0, **way) as envs:
        envs.reset(seed=0)
        interrupts = 0
        with pytest.raises(KeyboardInterrupt):
            act(envs, [INTERRUPT, COUNT, INTERRUPT, INTERRUPT])
        for _ in range(4):
            try:
                envs.reset(seed=0)
                break
            except KeyboardInterrupt:
                interrupts += 1
        assert interrupts == 0 if not way else interrupts > 0
        assert act(envs, [COUNT] * 4)[0].max() == 1


@ways
def test_of_a_whole_step(way: dict[str, Any]) -> None:
    with shoal.make_vec(Counting, 4, num_workers=0, **way) as envs:
        envs.reset(seed=0)
        with pytest.raises(SystemExit):
            act(envs, [COUNT, COUNT, COUNT, EXIT])
        assert envs.reset(seed=0)[0].tolist() == [[0]] * 4


@pytest.mark.parametrize(
    "way", [{"batch_size": 4}, {"batch_size": 2}, {"cohorts": 2}], ids=["whole", "arrival", "cohorts"]
)
def test_nothing_is_sent_or_reset_one_by_one_before(way: dict[str, Any]) -> None:
    with shoal.make_vec(Counting, 4, num_workers=0, **way) as envs:
        envs.reset(seed=0)
        envs.send([INTERRUPT, COUNT], [0, 1])
        if envs.batch_size == 4:
            envs.send([COUNT, COUNT], [2, 3])
        with pytest.raises(KeyboardInterrupt):
            envs.recv()
        with pytest.raises(RuntimeError, match="send: the call before was interrupted"):
            envs.send([COUNT], [3])
        with pytest.raises(gymnasium.error.AlreadyPendingCallError, match=r"or reset\(\)"):
            envs.async_reset()
        envs.discard()
        assert envs.in_flight == 0
        with pytest.raises(RuntimeError, match="send: the call before was interrupted"):
            envs.send([COUNT], [3])
        envs.async_reset()
        assert sum(len(envs.recv()[0]) for _ in range(4 // envs.batch_size)) == 4
        assert act(envs, [COUNT] * 4)[0].max() == 1


def test_a_failure_beside_it_is_not_told() -> None:
    class Failing(Counting):
        def step(self, action: Any) -> Any:
            if action == EXIT:
                raise ValueError("the simulator is gone")
            return super().step(action)

    with shoal.make_vec(Failing, 4, num_workers=0, batch_size=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(KeyboardInterrupt):
            act(envs, [COUNT, INTERRUPT, EXIT, COUNT])
        assert envs.reset(seed=0)[0].tolist() == [[0]] * 4
        with pytest.raises(ValueError, match="the simulator is gone"):
            act(envs, [EXIT, COUNT, COUNT, COUNT])
