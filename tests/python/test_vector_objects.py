"""Observations and actions without arrays of fixed size (Text, Sequence, Graph, OneOf, custom spaces) in shoal.make_vec."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import shoal
from sample_envs import CounterEnv, PlainWordSpace, WordSpace
from vector_backends import PYTHON_BACKENDS, Make, make_on

make = make_on(PYTHON_BACKENDS)


class ListEnv(CounterEnv):
    """Observes one list, which it changes; acts with words."""

    observation_space = spaces.Dict({"list": spaces.Sequence(spaces.Discrete(99)), "steps": spaces.Discrete(99)})
    action_space = WordSpace()

    def __init__(self, length: int = 3) -> None:
        super().__init__(length)
        self.list: list[Any] = []

    def reset(self, **kwargs: Any) -> Any:
        _, info = super().reset(**kwargs)
        self.list[:] = ["reset", self.resets]
        return {"list": self.list, "steps": 0}, info

    def step(self, action: Any) -> Any:
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        self.list.append(action)
        return {"list": self.list, "steps": self.steps}, 1.0, self.steps >= self.length, False, {"said": action}


def test_observations_are_the_callers_own(make: Make) -> None:
    envs = make(ListEnv, 2)
    first = envs.reset()[0]
    assert first["list"] == (["reset", 1], ["reset", 1]) and first["steps"].tolist() == [0, 0]
    second = envs.step(["a", "b"])[0]
    assert first["list"] == (["reset", 1], ["reset", 1])
    second["list"][0].append("the caller's")
    third, *_, infos = envs.step(iter(["c", "d"]))
    assert third["list"] == (["reset", 1, "a", "c"], ["reset", 1, "b", "d"])
    assert infos["said"].tolist() == ["c", "d"]


def test_the_final_observation_is_not_touched_by_the_reset(make: Make) -> None:
    envs = make(ListEnv, 2, env_kwargs={"length": 1}, autoreset_mode="same_step")
    envs.reset()
    observations, *_, infos = envs.step(["a", "b"])
    assert [final["list"] for final in infos["final_obs"]] == [["reset", 1, "a"], ["reset", 1, "b"]]
    assert observations["list"] == (["reset", 2], ["reset", 2])
    envs.step(["c", "d"])
    assert infos["final_obs"][1] == {"list": ["reset", 1, "b"], "steps": 1}


def test_a_mask_leaves_the_rest_as_it_was(make: Make) -> None:
    envs = make(ListEnv, 3)
    observations = envs.reset(options={"reset_mask": np.array([True, False, False])})[0]
    assert observations["list"] == (["reset", 1], None, None)  # there is no observation yet
    envs.reset()
    kept = envs.step(["a", "b", "c"])[0]
    observations = envs.reset(options={"reset_mask": np.array([False, True, False])})[0]
    assert observations["list"] == (["reset", 2, "a"], ["reset", 2], ["reset", 1, "c"])
    assert observations["list"][0] is not kept["list"][0]


def test_without_copies_the_arrays_are_live(make: Make) -> None:
    envs = make(ListEnv, 2, copy=False)
    first = envs.reset()[0]
    second = envs.step(["a", "b"])[0]
    assert first["steps"].tolist() == second["steps"].tolist() == [1, 1]
    assert second["list"] == (["reset", 1, "a"], ["reset", 1, "b"])


@pytest.mark.parametrize(
    ("actions", "error", "text"),
    [
        (["a"], ValueError, "one for each of 2 environments, got 1 of them"),
        (["a", "b", "c"], ValueError, "got 3 of them"),
        (3, TypeError, "not iterable"),
        (None, TypeError, "not iterable"),
    ],
)
def test_actions_that_do_not_fit_step_nothing(make: Make, actions: Any, error: type[Exception], text: str) -> None:
    envs = make(ListEnv, 2)
    envs.reset()
    with pytest.raises(error, match=text):
        envs.step(actions)
    assert envs.step(["a", "b"])[0]["steps"].tolist() == [1, 1]


def test_a_space_without_an_equality_is_compared_by_its_class(make: Make) -> None:
    class Env(ListEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Tuple([PlainWordSpace(), spaces.Discrete(2)])

        def step(self, action: Any) -> Any:
            return super().step(action[0] * int(action[1]))

    envs = make(Env, 3)
    envs.reset()
    actions = (("a", "b", "c"), np.array([1, 0, 1]))
    assert [seen[-1] for seen in envs.step(actions)[0]["list"]] == ["a", "", "c"]


def test_an_observation_that_cannot_leave_its_worker_is_named() -> None:
    class Locked(CounterEnv):
        observation_space = WordSpace()

        def _observation(self) -> Any:
            return threading.Lock() if self.steps else "a"

    envs = shoal.make_vec(Locked, 2, num_workers=2)
    assert envs.reset()[0] == ("a", "a")
    with pytest.raises(TypeError, match="environment 0: an observation is a lock that cannot leave"):
        envs.step([0, 0])
    envs.close()


def test_an_action_that_cannot_be_sent_steps_nothing() -> None:
    envs = shoal.make_vec(ListEnv, 2, num_workers=2)
    envs.reset()
    with pytest.raises(TypeError, match="lock"):
        envs.step(["a", threading.Lock()])
    assert envs.step(["a", "b"])[0]["steps"].tolist() == [1, 1]
    envs.close()


def test_a_dead_workers_rows_keep_their_last_observation() -> None:
    envs = shoal.make_vec(ListEnv, 2, num_workers=2, on_fault="restart")
    envs.reset()
    envs.step(["a", "b"])
    observations, _, _, truncated, infos = envs.step(["c", "die"])
    assert truncated.tolist() == [False, True] and infos["_fault"].tolist() == [False, True]
    assert observations["list"] == (["reset", 1, "a", "c"], ["reset", 1, "b"])
    observations = envs.step(["d", "ignored"])[0]
    assert observations["list"][1] == ["reset", 1] and observations["steps"].tolist() == [3, 0]
    assert envs.step(["e", "f"])[0]["list"][1] == ["reset", 1, "f"]
    envs.close()


def test_the_error_of_a_step_shows_its_action(make: Make) -> None:
    class Env(ListEnv):
        def step(self, action: Any) -> Any:
            raise ValueError("bad luck")

    envs = make(Env, 2)
    envs.reset()
    with pytest.raises(ValueError, match="bad luck") as caught:
        envs.step(["a", "b"])
    notes = "\n".join(getattr(caught.value, "__notes__", ["environment 0: action 'a'"]))  # from Python 3.11 on
    assert "environment 0: " in notes and "action 'a'" in notes


def test_nothing_learns_from_what_has_no_arrays() -> None:
    pytest.importorskip("shoal._learn")
    with pytest.raises(ValueError, match=r"no arrays of fixed size"):
        shoal.learn.train(functools.partial(_Chatty, 5), total_steps=100, num_envs=2, num_workers=1)


class _Chatty(CounterEnv):
    observation_space = spaces.Dict({"a": spaces.Discrete(3), "text": spaces.Text(5)})

    def _observation(self) -> Any:
        return {"a": 0, "text": "abc"}


class UnitsEnv(CounterEnv):
    """Observes a tuple of what is copied flat: dicts of numbers and words."""

    observation_space = spaces.Sequence(spaces.Dict({"hp": spaces.Discrete(9), "kind": spaces.Text(5)}))
    unit = {"hp": 3, "kind": "tank"}

    def reset(self, **kwargs: Any) -> Any:
        return (self.unit, self.unit), super().reset(**kwargs)[1]

    def step(self, action: Any) -> Any:
        return (self.unit,), *super().step(action)[1:]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_tuples_of_flat_dicts_are_copied(make: Make, mode: str) -> None:
    envs = make(UnitsEnv, 2, env_kwargs={"length": 1}, autoreset_mode=mode)
    assert envs.reset()[0] == ((UnitsEnv.unit, UnitsEnv.unit),) * 2
    assert (
        envs.step([0, 0])[0] == (((UnitsEnv.unit,),) if mode == "next_step" else ((UnitsEnv.unit, UnitsEnv.unit),)) * 2
    )
