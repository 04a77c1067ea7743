"""shoal.compat.pettingzoo: agents of parallel environments as rows."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from interrupting import interrupted_once_there
from same import assert_same
from sample_envs import TOLD_OF_DEATH, die
from shoal.compat import pettingzoo


class Meadow:
    """Agents graze until they are full: agent k after k + 2 steps; the last is cut short after `limit`. One that has `late`
    steps to come is not there before."""

    metadata = {"name": "meadow_v0", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self, count: int = 3, limit: int = 3, late: int = 0, odd: bool = False) -> None:
        self.possible_agents = [f"sheep_{k}" for k in range(count)]
        self.agents: list[str] = []
        self.limit, self.late, self.odd = limit, late, odd
        self.closed = 0

    def observation_space(self, agent: str) -> Any:
        seen = spaces.Box(-100, 1000, (4 if self.odd and agent == "sheep_1" else 2,), np.float32)
        return spaces.Dict({"action_mask": spaces.MultiBinary(3), "seen": seen})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self.generator = np.random.default_rng(seed) if seed is not None or not self.agents else self.generator
        self.at, self.hay = 0, float((options or {}).get("hay", 0))
        self.agents = self.possible_agents[: 1 if self.late else None]
        return {agent: self._seen(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        assert list(actions) == self.agents
        self.at += 1
        there = self.agents
        terminated = {agent: self.at == int(agent[-1]) + 2 for agent in there}
        truncated = dict.fromkeys(there, self.at == self.limit)
        self.agents = [agent for agent in there if not terminated[agent] and not truncated[agent]]
        if self.late and self.at == self.late:
            self.agents = self.agents + self.possible_agents[1:]
        seen = {agent: self._seen(agent) for agent in dict.fromkeys([*there, *self.agents])}
        rewards = {agent: float(actions[agent]) + self.hay for agent in there}
        infos = {agent: {"full": int(agent[-1])} if terminated[agent] else {} for agent in there}
        return seen, rewards, terminated, truncated, infos

    def _seen(self, agent: str) -> Any:
        drawn = self.generator.normal()
        return {"action_mask": np.ones(3, np.int8), "seen": np.array([self.at + 1, drawn], np.float32)}

    def render(self) -> Any:
        return np.full((1, 1, 3), self.at, np.uint8)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def make_vec() -> Iterator[Any]:
    """pettingzoo.make_vec(), whose environments are closed."""
    made: list[pettingzoo.ParallelVectorEnv] = []

    def make(*arguments: Any, **options: Any) -> pettingzoo.ParallelVectorEnv:
        made.append(pettingzoo.make_vec(*arguments, **options))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_are_agents_and_those_of_the_dead_are_zeros(make_vec: Any, num_workers: int) -> None:
    envs = make_vec(Meadow, 2, num_workers=num_workers)
    assert envs.num_envs == 6 and envs.agents == ["sheep_0", "sheep_1", "sheep_2"]
    assert envs.single_action_space == spaces.Discrete(3) and envs.observation_space["seen"].shape == (6, 2)
    singles = [Meadow(), Meadow()]
    observations, infos = envs.reset(seed=4)
    told = [single.reset(seed=4 + i)[0] for i, single in enumerate(singles)]
    assert infos["alive"].tolist() == [True] * 6
    actions = np.array([0, 1, 2, 2, 1, 0])
    flags = []
    nothing = {"action_mask": np.zeros(3, np.int8), "seen": np.zeros(2, np.float32)}
    for _ in range(3):
        for i, single in enumerate(singles):
            for k, agent in enumerate(single.possible_agents):
                row = {key: part[i * 3 + k] for key, part in observations.items()}
                assert_same(row, told[i].get(agent, nothing))
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        for i, single in enumerate(singles):
            there = single.agents
            names = dict(zip(single.possible_agents, actions[i * 3 :], strict=False))
            told[i], paid, *_ = single.step({agent: names[agent] for agent in there})
            assert rewards[i * 3 : i * 3 + 3].tolist() == [paid.get(agent, 0.0) for agent in single.possible_agents]
        assert rewards.dtype == np.float64 and terminated.dtype == truncated.dtype == np.bool_
        flags.append((terminated[:3].tolist(), truncated[:3].tolist(), infos["alive"][:3].tolist()))
        assert_same(terminated[:3], terminated[3:])
    yes, no = True, False
    assert flags == [
        ([no, no, no], [no, no, no], [yes, yes, yes]),
        ([yes, no, no], [no, no, no], [no, yes, yes]),
        ([no, yes, no], [no, yes, yes], [no, no, no]),
    ]
    assert infos["full"][1] == 1 and infos["_full"].tolist() == [no, yes, no] * 2
    observations, rewards, terminated, truncated, infos = envs.step(actions)  # which resets
    assert observations["seen"][:, 0].tolist() == [1.0] * 6 and infos["alive"].all()
    assert not rewards.any() and not terminated.any() and not truncated.any()
    assert envs.render()[0].shape == (1, 1, 3)


def test_agents_that_come_later_have_their_rows_from_the_start(make_vec: Any) -> None:
    envs = make_vec(Meadow, 1, env_kwargs={"late": 1})
    observations, infos = envs.reset()
    assert infos["alive"].tolist() == [True, False, False] and observations["seen"][:, 0].tolist() == [1.0, 0.0, 0.0]
    observations, rewards, *_, infos = envs.step(np.array([2, 2, 2]))
    assert infos["alive"].all() and observations["seen"][:, 0].tolist() == [2.0] * 3
    assert rewards.tolist() == [2.0, 0.0, 0.0]


def test_resets_take_options_seeds_and_a_mask_of_environments(make_vec: Any) -> None:
    envs = make_vec(Meadow, 2, autoreset_mode="disabled", seed=9)
    first = envs.reset(options={"hay": 5})[0]["seen"]
    assert envs.step(np.zeros(6, np.int64))[1].tolist() == [5.0] * 6
    again = envs.reset(seed=[9, 10])[0]["seen"]
    assert_same(first, again)
    for _ in range(3):
        infos = envs.step(np.zeros(6, np.int64))[4]
    assert not infos["alive"].any()
    observations, infos = envs.reset(options={"reset_mask": np.array([False, True])})
    assert infos["alive"].tolist() == [False] * 3 + [True] * 3


def test_what_does_not_go_is_refused_with_what_to_write(make_vec: Any) -> None:
    with pytest.raises(ValueError, match="same observation_space.*'sheep_1'.*pad_observations_v0"):
        make_vec(Meadow, 2, env_kwargs={"odd": True})
    with pytest.raises(ValueError, match="possible_agents is empty"):
        make_vec(Meadow, 1, env_kwargs={"count": 0})
    with pytest.raises(ValueError, match="take 'next_step'"):
        make_vec(Meadow, 1, autoreset_mode="same_step")
    with pytest.raises(ValueError, match="frame_stack=…. knows no agents"):
        make_vec(Meadow, 1, frame_stack=4)
    with pytest.raises(TypeError, match=r"parallel_env is an environment \(a Meadow\)\. .* lambda: Meadow\("):
        make_vec(Meadow(), 2)
    with pytest.raises(TypeError, match="parallel_env is 'meadow'"):
        make_vec("meadow", 2)
    with pytest.raises(ValueError, match=r"make_vec\(num_envs=…\) takes 1 or more, got 0"):
        make_vec(Meadow, 0)
    envs = make_vec(Meadow, 2)
    envs.reset()
    with pytest.raises(ValueError, match=r"each of 6 rows, 3 agents of 2 environments; got an array of shape \(5,\)"):
        envs.step(np.zeros(5, np.int64))


class InTurns(Meadow):
    """As PettingZoo's AECEnv."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = self.possible_agents

    def agent_iter(self, max_iter: int = 2**63) -> Iterator[str]:
        yield from self.agents


class Vectorised(gymnasium.vector.VectorEnv):
    """As SuperSuit's MarkovVectorEnv."""

    num_envs = 3


class Alone(gymnasium.Env):
    """Of one player."""


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (InTurns, r"InTurns is an AEC environment.*aec_to_parallel\("),
        (Vectorised, "Vectorised is a vector environment.*Give make_vec the parallel environment's function itself"),
        (Alone, "Alone is a Gymnasium environment, and no PettingZoo environment"),
    ],
)
def test_environments_of_other_kinds_are_refused(make_vec: Any, kind: type, words: str, num_workers: int) -> None:
    with pytest.raises(TypeError, match=words):
        make_vec(lambda: kind(), 2, num_workers=num_workers)
    with pytest.raises(TypeError, match=words):
        make_vec(kind(), 2, num_workers=num_workers)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "it returned None"),
        ({"sheep_0": 1}, "it returned one dict"),
        (({}, {}, {}), "it returned 3 values: dict, dict, dict"),
        (({}, None), "it returned 2 values: dict, NoneType"),
        (np.zeros(2), "it returned a ndarray"),
    ],
)
def test_a_reset_that_returns_no_pair_of_dicts_is_named(make_vec: Any, returned: Any, words: str) -> None:
    class Old(Meadow):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return returned

    envs = make_vec(Old, 1, num_workers=0)
    with pytest.raises(TypeError, match=rf"Old.reset\(\) returns a pair of dicts.*{words}"):
        envs.reset()


def test_supersuits_number_of_processes_has_another_name_here(make_vec: Any) -> None:
    with pytest.raises(TypeError, match="no argument 'num_cpus', which is SuperSuit's: write num_workers=2"):
        make_vec(Meadow, 4, num_cpus=2)


class Marsh(Meadow):
    """Action 2 of its first agent ends its process."""

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        if actions["sheep_0"] == 2:
            die()
        return super().step(actions)


def test_a_killed_worker_is_told_with_its_last_words(make_vec: Any) -> None:
    envs = make_vec(Marsh, 2, num_workers=2, env_kwargs={"count": 2})
    envs.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH):
        envs.step(np.array([1, 1, 2, 1]))


def test_the_agents_of_a_lost_environment_are_cut_short(make_vec: Any) -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    envs = make_vec(Meadow, 2, num_workers=2, on_fault=fault, env_kwargs={"limit": 10**6, "count": 2})
    envs.reset()
    actions = np.ones(4, np.int64)
    envs.step(actions)
    envs.step(actions)  # the first of each is full
    os.kill(envs.vector_env.stats()["workers"][1]["pid"], signal.SIGKILL)
    _, rewards, terminated, truncated, infos = envs.step(actions)
    assert infos["_fault"].tolist() == [False, False, True, True]
    assert truncated.tolist() == [False, False, False, True] and terminated.tolist() == [False, True, False, False]
    assert rewards.tolist() == [0.0, 1.0, 0.0, 0.0] and not infos["alive"][2:].any()
    while "down" in (infos := (result := envs.step(actions))[4]):
        assert not infos["alive"][2:].any() and not result[3][2:].any()
    assert infos["alive"][2:].all() and result[0]["seen"][2:, 0].tolist() == [1.0, 1.0]


class Ditch(Meadow):
    """What its agents say is called as faults of environments are."""

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        *result, _ = super().step(actions)
        return (*result, {agent: {"fault": 0.5, "down": 1, "deep": 2} for agent in actions})


def test_what_agents_call_a_fault_is_none(make_vec: Any) -> None:
    envs = make_vec(Ditch, 2, num_workers=2, env_kwargs={"limit": 9})
    envs.reset()
    assert envs.step(np.ones(6, np.int64))[-1]["fault"].tolist() == [0.5] * 6
    envs = make_vec(Ditch, 2, num_workers=2, env_kwargs={"limit": 9}, on_fault="restart")
    envs.reset()
    assert set(envs.step(np.ones(6, np.int64))[-1]) == {"deep", "_deep", "alive"}


def test_a_dropped_environments_agents_are_gone_for_good(make_vec: Any) -> None:
    envs = make_vec(Meadow, 2, num_workers=2, on_fault="drop", env_kwargs={"limit": 10**6, "count": 1})
    envs.reset()
    os.kill(envs.vector_env.stats()["workers"][1]["pid"], signal.SIGKILL)
    assert envs.step(np.ones(2, np.int64))[3].tolist() == [False, True]
    for _ in range(3):
        _, rewards, terminated, truncated, infos = envs.step(np.ones(2, np.int64))
        assert infos["dropped"].tolist() == [False, True] and not infos["alive"][1]
        assert not rewards[1] and not terminated[1] and not truncated[1]


class Fence(gymnasium.Wrapper):
    """Ends the episode with its second step."""

    def reset(self, **arguments: Any) -> Any:
        self.steps = 0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        self.steps += 1
        observations, reward, terminated, truncated, info = self.env.step(action)
        return observations, reward, terminated or self.steps == 2, truncated, info


ENDS = {
    "max_episode_steps": ({"max_episode_steps": 2}, "truncated"),
    "TimeLimit": (
        {"wrappers": [functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=2)]},
        "truncated",
    ),
    "a wrapper": ({"wrappers": [Fence]}, "terminated"),
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", ENDS)
def test_what_ends_an_environments_episode_ends_it_for_the_agents_that_are_there(
    make_vec: Any, name: str, num_workers: int
) -> None:
    options, which = ENDS[name]
    envs = make_vec(Meadow, 2, num_workers=num_workers, env_kwargs={"limit": 10**6}, **options)
    envs.reset()
    actions = np.ones(6, np.int64)
    _, _, terminated, truncated, infos = envs.step(actions)
    assert not terminated.any() and not truncated.any() and infos["alive"].all()
    observations, rewards, terminated, truncated, infos = envs.step(actions)  # the first of each is full
    flags = {"terminated": [True, False, False] * 2, "truncated": [False] * 6}
    flags[which] = [own or k % 3 > 0 for k, own in enumerate(flags[which])]
    assert terminated.tolist() == flags["terminated"] and truncated.tolist() == flags["truncated"]
    assert not infos["alive"].any() and rewards.all() and observations["seen"][:, 0].tolist() == [3.0] * 6
    observations, rewards, terminated, truncated, infos = envs.step(actions)  # which resets
    assert observations["seen"][:, 0].tolist() == [1.0] * 6 and infos["alive"].all()
    assert not rewards.any() and not terminated.any() and not truncated.any()


def test_agents_that_are_cut_short_stay_so_until_they_are_reset(make_vec: Any) -> None:
    env_kwargs = {"limit": 10**6, "late": 2}
    envs = make_vec(Meadow, 1, max_episode_steps=2, autoreset_mode="disabled", env_kwargs=env_kwargs)
    envs.reset()
    actions = np.ones(3, np.int64)
    assert envs.step(actions)[4]["alive"].tolist() == [True, False, False]
    _, _, terminated, truncated, infos = envs.step(actions)  # the others come when all is over
    assert (terminated | truncated).tolist() == [True, False, False] and not infos["alive"].any()
    _, _, terminated, truncated, infos = envs.step(actions)
    assert not terminated.any() and not truncated.any() and not infos["alive"].any()
    assert envs.reset()[1]["alive"].tolist() == [True, False, False]


@pytest.mark.parametrize("autoreset_mode", ["next_step", "disabled"])
def test_a_reset_of_some_leaves_those_that_are_over_as_they_are(make_vec: Any, autoreset_mode: str) -> None:
    env_kwargs = {"limit": 10**6, "count": 1}
    envs = make_vec(Meadow, 2, wrappers=[Fence], autoreset_mode=autoreset_mode, env_kwargs=env_kwargs)
    envs.reset()
    for _ in range(2):
        infos = envs.step(np.ones(2, np.int64))[4]
    assert infos["alive"].tolist() == [False, False]
    assert envs.reset(options={"reset_mask": np.array([False, True])})[1]["alive"].tolist() == [False, True]


class Burrow(Meadow):
    """Environment 1 dies in its second reset."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if shoal.worker().env_index == 1:
            shoal.worker().counter("resets").add(1)
            if shoal.worker().counter("resets").value == 2:
                die()
        return super().reset(seed, options)


def test_agents_whose_environment_is_lost_in_its_reset_are_not_there(make_vec: Any) -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    envs = make_vec(Burrow, 2, num_workers=2, on_fault=fault, env_kwargs={"limit": 10**6, "count": 2})
    assert envs.reset()[1]["alive"].all()
    infos = envs.reset()[1]
    assert infos["_fault"].tolist() == infos["alive"].tolist()[::-1] == [False, False, True, True]
    while "down" in (infos := (result := envs.step(np.ones(4, np.int64)))[4]):
        assert not infos["alive"][2:].any()
    assert infos["alive"][2:].all() and result[0]["seen"][2:, 0].tolist() == [1.0, 1.0]


def test_environments_are_closed_in_time() -> None:
    with pettingzoo.make_vec(Meadow, 1, num_workers=0) as envs:
        inner = envs.vector_env.get_attr("env")[0]
        envs.close(timeout=5.0)
        assert inner.closed == 1 and envs.vector_env.closed and isinstance(envs, gymnasium.vector.VectorEnv)


# Stable-Baselines3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stable_baselines3_has_agents_as_rows(num_workers: int) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.monitor import Monitor

    envs = pettingzoo.make_vec(Meadow, 2, num_workers=num_workers, base_class="stable_baselines3")
    assert envs.num_envs == 6 and envs.action_space == spaces.Discrete(3) and envs.render_mode == "rgb_array"
    envs.seed(4)
    first = envs.reset()
    singles = [Meadow(), Meadow()]
    assert first["seen"][3].tolist() == singles[1].reset(seed=5)[0]["sheep_0"]["seen"].tolist()
    told = []
    for _ in range(4):
        observations, rewards, dones, infos = envs.step(np.array([0, 1, 2, 2, 1, 0]))
        acted = [info["acted"] for info in infos[:3]]
        episodes = [info["episode"]["l"] if "episode" in info else None for info in infos[:3]]
        told.append((dones[:3].tolist(), acted, episodes, observations["seen"][:3, 0].tolist()))
    assert told == [
        ([False, False, False], [True] * 3, [None] * 3, [2.0, 2.0, 2.0]),
        ([True, False, False], [True] * 3, [2, None, None], [3.0, 3.0, 3.0]),
        ([True, True, True], [False, True, True], [None, 3, 3], [1.0, 1.0, 1.0]),  # and the next episode begins
        ([False, False, False], [True] * 3, [None] * 3, [2.0, 2.0, 2.0]),
    ]
    envs.reset()
    for _ in range(3):
        *_, infos = envs.step(np.array([0, 1, 2, 2, 1, 0]))
    assert [info.get("terminal_observation")["seen"][0] for info in infos[:3]] == [0.0, 4.0, 4.0]
    assert [info["TimeLimit.truncated"] for info in infos[:3]] == [False, False, True]
    assert infos[1]["episode"]["r"] == 3.0 and infos[2]["episode"]["r"] == 6.0 and infos[1]["full"] == 1
    envs.set_attr("limit", 9, indices=[3])
    assert envs.get_attr("limit") == [3, 3, 3, 9, 9, 9] and envs.get_attr("limit", 0) == [3]
    assert envs.env_method("observation_space", "sheep_0", indices=5) == [envs.observation_space]
    assert envs.env_is_wrapped(Monitor) == [True] * 6 and len(envs.get_images()) == 2
    envs.close()


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", ENDS)
def test_stable_baselines3_learns_of_ends_that_no_agent_knows(name: str, num_workers: int) -> None:
    pytest.importorskip("stable_baselines3")
    options, which = ENDS[name]
    base = {"base_class": "stable_baselines3", "num_workers": num_workers, "env_kwargs": {"limit": 10**6, "count": 2}}
    envs = pettingzoo.make_vec(Meadow, 2, **base, **options)
    envs.reset()
    for _ in range(2):
        assert not envs.step(np.ones(4, np.int64))[2].any()
        observations, rewards, dones, infos = envs.step(np.ones(4, np.int64))
        assert dones.all() and rewards.tolist() == [1.0] * 4 and observations["seen"][:, 0].tolist() == [1.0] * 4
        assert [info["TimeLimit.truncated"] for info in infos] == [False, which == "truncated"] * 2
        assert [info["terminal_observation"]["seen"][0] for info in infos] == [3.0] * 4
        assert [info["episode"]["l"] for info in infos] == [2] * 4
    envs.close()


class Bleating(Meadow):
    """Its agents say what no array has for all of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.steps = np.zeros(1)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        observations, _ = super().reset(seed, options)
        return observations, {agent: self.said(k) for k, agent in enumerate(self.agents)}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        self.steps += 1
        return *super().step(actions)[:4], {agent: self.said(k) for k, agent in enumerate(actions)}  # type: ignore[return-value]

    def said(self, k: int) -> dict[str, Any]:
        said = {"loud": [2, 0.5][k], "deep": {"who": [k], "more": {"at": self.at}}, "places": np.arange(k + 1)}
        return {**said, "steps": self.steps, **({} if k else {"leads": True})}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_stable_baselines3_has_every_agents_infos_as_they_were(num_workers: int) -> None:
    pytest.importorskip("stable_baselines3")
    options = {"base_class": "stable_baselines3", "num_workers": num_workers, "env_kwargs": {"count": 2, "limit": 2}}
    envs = pettingzoo.make_vec(Bleating, 2, **options)
    envs.reset()
    single = Bleating(count=2, limit=2)
    single.reset()
    expected = [single.said(k % 2) for k in range(4)]
    assert_same(envs.reset_infos, expected)
    kept = []
    for step in range(1, 3):
        single.at, single.steps = step, np.full(1, float(step))
        *_, infos = envs.step(np.ones(4, np.int64))
        own = [{key: info[key] for key in expected[row]} for row, info in enumerate(infos)]
        kept.append((own, [single.said(k % 2) for k in range(4)]))
    for own, said in kept:
        assert_same(own, said)
    assert [info["deep"]["more"]["at"] for info in envs.reset_infos] == [0] * 4
    envs.close()


def test_stable_baselines3_gives_every_environment_options_of_its_own() -> None:
    pytest.importorskip("stable_baselines3")
    options = {"base_class": "stable_baselines3", "num_workers": 2, "env_kwargs": {"count": 2}, "max_episode_steps": 9}
    envs = pettingzoo.make_vec(Meadow, 3, **options)

    def paid() -> list[float]:
        envs.reset()
        return envs.step(np.zeros(6, np.int64))[1].tolist()

    envs.set_options([{"hay": 1}, {"hay": 7}, {}, {"hay": 8}, {"hay": 3}, {}])
    assert paid() == [1.0, 1.0, 0.0, 0.0, 3.0, 3.0]
    assert paid() == [0.0] * 6, "they are of one reset"
    envs.set_options({"hay": 4})
    assert paid() == [4.0] * 6
    envs.set_options([{}, {"hay": 1}, {"hay": 5}])
    with pytest.raises(ValueError, match=r"set_options\(\) got 3 dicts for 6 rows"):
        envs.reset()
    envs.close()


class Gated(Meadow):
    """Its steps tell that they have begun, and wait for a gate."""

    def __init__(self, folder: Path) -> None:
        super().__init__(2)
        self.folder = folder

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        (self.folder / "begun").touch()
        while not (self.folder / "gate").exists():
            time.sleep(0.001)
        return super().step(actions)


def left_in_a_step(folder: Path, actions: Any) -> Any:
    """Two environments for Stable-Baselines3 whose step Ctrl-C has left, and may end now."""
    pytest.importorskip("stable_baselines3")
    envs = pettingzoo.make_vec(Gated, 2, num_workers=2, base_class="stable_baselines3", env_kwargs={"folder": folder})
    envs.reset()
    with interrupted_once_there(folder / "begun"):
        envs.step(actions)
    (folder / "gate").touch()
    return envs


@pytest.mark.parametrize("options", [{"hay": 2}, [{"hay": 1}, {}, {"hay": 3}, {}]])
def test_a_reset_for_stable_baselines3_waits_for_a_step_that_ctrl_c_has_left(options: Any, tmp_path: Path) -> None:
    envs = left_in_a_step(tmp_path, np.zeros(4, np.int64))
    envs.set_options(options)
    assert envs.reset()["seen"][:, 0].tolist() == [1.0] * 4
    paid = [2.0] * 4 if isinstance(options, dict) else [1.0, 1.0, 3.0, 3.0]
    assert envs.step(np.zeros(4, np.int64))[1].tolist() == paid
    envs.close()


SB3_CALLS = {
    "has_attr": ("at",),
    "get_attr": ("at",),
    "set_attr": ("late", 0),
    "env_method": ("render",),
    "get_images": (),
}


@pytest.mark.parametrize("name", SB3_CALLS)
def test_every_call_for_stable_baselines3_waits_for_a_step_that_ctrl_c_has_left(name: str, tmp_path: Path) -> None:
    envs = left_in_a_step(tmp_path, np.ones(4, np.int64))
    getattr(envs, name)(*SB3_CALLS[name])
    assert envs.get_attr("at") == [1] * 4
    observations, _, dones, infos = envs.step(np.ones(4, np.int64))
    assert observations["seen"][:, 0].tolist() == [3.0] * 4 and dones.tolist() == [True, False] * 2
    assert infos[0]["episode"]["r"] == 2.0 and infos[0]["episode"]["l"] == 2  # the step that was left counts
    envs.close()


def test_an_episode_that_ends_in_a_step_that_ctrl_c_has_left_is_followed_by_the_next(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    envs = pettingzoo.make_vec(Gated, 2, num_workers=2, base_class="stable_baselines3", env_kwargs={"folder": tmp_path})
    (tmp_path / "gate").touch()
    envs.reset()
    for _ in range(2):
        envs.step(np.ones(4, np.int64))
    (tmp_path / "gate").unlink()
    (tmp_path / "begun").unlink()
    with interrupted_once_there(tmp_path / "begun"):
        envs.step(np.ones(4, np.int64))
    (tmp_path / "gate").touch()
    observations, rewards, dones, infos = envs.step(np.ones(4, np.int64))
    assert observations["seen"][:, 0].tolist() == [2.0] * 4 and rewards.tolist() == [1.0] * 4 and not dones.any()
    assert all(info["acted"] for info in infos)
    *_, infos = envs.step(np.ones(4, np.int64))
    assert infos[0]["episode"]["r"] == 2.0 and infos[0]["episode"]["l"] == 2
    envs.close()


class Broken(Meadow):
    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        raise OSError("broken")


def test_calls_for_stable_baselines3_have_the_callers_names() -> None:
    pytest.importorskip("stable_baselines3")
    envs = pettingzoo.make_vec(Broken, 2, num_workers=2, base_class="stable_baselines3")
    with pytest.raises(IndexError, match=r"^AgentsVecEnv.get_attr\(\): there is no environment 9"):
        envs.get_attr("at", indices=9)
    envs.reset()
    with pytest.raises(OSError, match="broken"):
        envs.step(np.zeros(6, np.int64))
    for name in ("has_attr", "get_attr", "env_method"):
        with pytest.raises(RuntimeError, match=f"^{name}: these environments are closed"):
            getattr(envs, name)("at")
    envs.close()


class Fond(Meadow):
    """Pays a tenth each step."""

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        seen, rewards, *others = super().step(actions)
        return seen, dict.fromkeys(rewards, 0.1), *others


def test_stable_baselines3_has_episodes_as_monitor_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3")
    clock = iter(range(0, 10**6, 7))
    monkeypatch.setattr("shoal.compat.pettingzoo.agents_vec_env.time.perf_counter", lambda: float(next(clock)))
    envs = pettingzoo.make_vec(Fond, 1, num_workers=0, base_class="stable_baselines3")
    envs.reset()
    told = []
    for _ in range(6):
        *_, infos = envs.step(np.zeros(3, np.int64))
        told += [info["episode"] for info in infos if "episode" in info]
    assert [episode["r"] for episode in told] == [0.2, 0.3, 0.3] * 2  # and not 0.30000000000000004
    assert all([type(value) for value in episode.values()] == [float, int, float] for episode in told)
    times = [episode["t"] for episode in told]
    assert times == sorted(times) and times[-1] >= 2 * times[2]  # since they were made
    envs.close()


class Barn(Meadow):
    """Has what cannot leave its process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.lock = threading.Lock()

    def action_masks(self) -> np.ndarray:
        return np.ones(3, np.int8)


def test_stable_baselines3_learns_that_there_is_what_cannot_leave_its_process() -> None:
    pytest.importorskip("stable_baselines3")
    envs = pettingzoo.make_vec(Barn, 2, num_workers=2, base_class="stable_baselines3")
    assert envs.has_attr("lock") and envs.has_attr("action_masks") and not envs.has_attr("key")
    envs.close()


class Hill(Meadow):
    """What it sees is a box."""

    def observation_space(self, agent: str) -> Any:
        return super().observation_space(agent)["seen"]

    def _seen(self, agent: str) -> Any:
        return super()._seen(agent)["seen"]


class Mire(Hill):
    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        if self.at == 2 and shoal.worker().env_index == 1 and shoal.worker().counter("deaths").value == 0:
            shoal.worker().counter("deaths").add(1)
            die()
        return super().step(actions)


def test_stable_baselines3_trains_and_lost_environments_begin_anew() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    options = {"base_class": "stable_baselines3", "num_workers": 2, "env_kwargs": {"limit": 4}}
    envs = pettingzoo.make_vec(Mire, 2, on_fault=shoal.FaultPolicy("restart", backoff=0.0), **options)
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu").learn(192)
    assert model.num_timesteps == 192 and len(model.ep_info_buffer) > 10
    assert max(episode["l"] for episode in model.ep_info_buffer) == 4
    assert envs.envs.vector_env.counter("deaths").value == 1
    envs.close()
    envs = pettingzoo.make_vec(Hill, 1, **{**options, "num_workers": 0})
    returns, lengths = evaluate_policy(model, envs, n_eval_episodes=3, return_episode_rewards=True)
    assert len(returns) == 3 and set(lengths) <= {2, 3, 4}
    envs.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base_class": "gym"}, "takes 'gymnasium' or 'stable_baselines3', got 'gym'"),
        ({"base_class": "stable_baselines3", "autoreset_mode": "disabled"}, "leave autoreset_mode out"),
        ({"base_class": "stable_baselines3", "on_fault": "drop"}, "take 'restart'"),
        ({"base_class": "stable_baselines3", "on_fault": shoal.FaultPolicy("drop")}, "take 'restart'"),
    ],
)
def test_what_stable_baselines3_cannot_have_is_refused(make_vec: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_vec(Meadow, 1, **options)
