"""Observations and actions without arrays of fixed size, of environments that are stepped one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shoal
from test_vector_objects import ListEnv
from vector_backends import Make

BACKENDS: dict[str, dict[str, Any]] = {"serial": {"num_workers": 0}, "process": {"num_workers": 2}}
WAYS: dict[str, dict[str, Any]] = {"arrival": {"batch_size": 2}, "cohorts": {"cohorts": 2}}


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Any] = []

    def make_and_keep(*args: Any, **kwargs: Any) -> Any:
        made.append(shoal.make_vec(*args, **{**BACKENDS[request.param], **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in made:
        envs.close()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_each_environment_is_given_its_own_words(make: Make, way: dict[str, Any], mode: str) -> None:
    envs: Any = make(ListEnv, 4, autoreset_mode=mode, env_kwargs={"length": 3}, **way)
    envs.async_reset(seed=0)
    said: list[list[Any]] = [[] for _ in range(4)]
    for turn in range(40):
        observations, _, terminated, _, infos = envs.recv(timeout=30)
        ids = infos["env_id"].tolist()
        assert isinstance(observations["list"], tuple) and observations["steps"].shape == (2,)
        for row, env in enumerate(ids):
            seen = observations["list"][row]
            over = said[env][-3:] if len(seen) == 2 else []
            if seen[0] == "reset" and len(seen) == 2:
                said[env] = []
            assert seen[2:] == said[env], (turn, env, over)
            assert observations["steps"][row] == len(said[env])
            if mode == "same_step" and infos.get("_final_obs", np.zeros(2, bool))[row]:
                final = infos["final_obs"][row]
                assert terminated[row] and final["list"][2:] == over_of(final) and final["steps"] == 3
        words = [f"{env} {turn}" for env in ids]
        envs.send(words, np.array(ids))
        for env, word in zip(ids, words, strict=True):
            ended = mode == "next_step" and len(said[env]) == 3
            said[env] = said[env] if ended else [*said[env], word]
    envs.discard(timeout=30)


def over_of(final: dict[str, Any]) -> list[Any]:
    """The words of an episode that has ended, which are one environment's."""
    words = final["list"][2:]
    assert len(words) == 3 and len({word.split()[0] for word in words}) == 1
    return words


def test_the_synchronous_calls_work_too(make: Make) -> None:
    envs: Any = make(ListEnv, 3, batch_size=1)
    first = envs.reset(seed=0)[0]
    assert first["list"] == (["reset", 1],) * 3
    envs.step_async(["a", "b", "c"])
    second, *_, infos = envs.step_wait()
    assert second["list"] == (["reset", 1, "a"], ["reset", 1, "b"], ["reset", 1, "c"])
    assert infos["said"].tolist() == ["a", "b", "c"]
    second["list"][0].append("the caller's")
    envs.send(["d", "e"], [0, 2])
    rows = {}
    for _ in range(2):
        observations, *_, infos = envs.recv(timeout=30)
        rows[int(infos["env_id"][0])] = observations["list"][0]
    assert rows == {0: ["reset", 1, "a", "d"], 2: ["reset", 1, "c", "e"]}


def test_what_is_large_comes_too(make: Make) -> None:
    envs: Any = make(ListEnv, 2, batch_size=1)
    envs.reset(seed=0)
    word = "x" * 5000
    envs.send([word, word], [0, 1])
    assert {envs.recv(timeout=30)[0]["list"][0][2] for _ in range(2)} == {word}


@pytest.mark.parametrize("actions", [["a"], ["a", "b", "c"], 3])
def test_actions_that_do_not_fit_send_nothing(make: Make, actions: Any) -> None:
    envs: Any = make(ListEnv, 4, batch_size=2)
    envs.reset(seed=0)
    with pytest.raises((ValueError, TypeError)):
        envs.send(actions, [0, 1])
    assert envs.in_flight == 0


def test_an_action_that_cannot_be_sent_sends_nothing() -> None:
    envs: Any = shoal.make_vec(ListEnv, 2, num_workers=2, batch_size=2)
    envs.reset(seed=0)
    with pytest.raises(TypeError, match="lock"):
        envs.send(["a", threading.Lock()], [0, 1])
    assert envs.in_flight == 0
    envs.send(["a", "b"], [0, 1])
    assert sorted(seen[-1] for seen in envs.recv(timeout=30)[0]["list"]) == ["a", "b"]
    envs.close()


@pytest.mark.parametrize("pool", [False, True])
def test_a_dead_workers_rows_keep_their_last_observation(pool: bool) -> None:
    workers: Any = shoal.WorkerPool(2) if pool else None
    where: dict[str, Any] = {"pool": workers} if pool else {"num_workers": 2}
    envs: Any = shoal.make_vec(ListEnv, 2, batch_size=1, on_fault="restart", **where)
    envs.reset(seed=0)
    seen = []
    for word in ("a", "die", "ignored", "b"):
        envs.send([word], [1])
        observations, _, _, truncated, _ = envs.recv(timeout=60)
        seen.append((observations["list"][0], bool(truncated[0])))
    assert seen == [
        (["reset", 1, "a"], False),
        (["reset", 1, "a"], True),
        (["reset", 1], False),
        (["reset", 1, "b"], False),
    ]
    envs.close()
    if pool:
        workers.close()
