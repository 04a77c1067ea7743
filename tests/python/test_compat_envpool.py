"""shoal.compat.envpool: EnvPool's names, habits and results."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal
import shoal.compat.envpool as envpool
from promise import await_that
from same import assert_same
from sample_envs import TOLD_OF_DEATH, CounterEnv, GatedEnv, MortalEnv, SpaceEnv

ACTIONS = np.random.default_rng(3).integers(0, 2, (60, 4))


class TellingEnv(CounterEnv):
    """Says something of every step, and of some more; has arguments."""

    metadata = {"render_modes": ["rgb_array", "human"]}

    def __init__(self, length: int = 3, level: int = 0, render_mode: str | None = None) -> None:
        super().__init__(length)
        self.level = level
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"lives": self.level, "asked": (options or {}).get("asked", 0)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {"lives": self.level - self.steps}
        return observation, reward, terminated, truncated, info | ({"two": True} if action == 2 else {})

    def render(self) -> Any:
        return np.full((2, 3, 3), self.seed % 256, np.uint8)


@pytest.fixture
def make() -> Iterator[Any]:
    """envpool.make(), whose environments are closed."""
    pools: list[envpool.EnvPool] = []

    def make_here(task_id: Any, **options: Any) -> envpool.EnvPool:
        pools.append(envpool.make(task_id, env_type="gymnasium", **options))
        return pools[-1]

    yield make_here
    for pool in pools:
        pool.close()


def test_a_program_of_synchronous_steps_has_gymnasiums_trajectories(make: Any) -> None:
    env = make("CartPole-v1", num_envs=4, num_threads=2, seed=5)
    singles = [gymnasium.make("CartPole-v1") for _ in range(4)]
    expected = [single.reset(seed=5 + i)[0] for i, single in enumerate(singles)]
    ended = [False] * 4
    elapsed = [0] * 4
    obs, info = env.reset()
    assert_same(obs, np.stack(expected))
    for actions in ACTIONS:
        obs, rew, term, trunc, info = env.step(actions)
        for i, single in enumerate(singles):
            if ended[i]:
                row: Any = (single.reset()[0], 0.0, False, False)
            else:
                row = single.step(actions[i])
            elapsed[i] = 0 if ended[i] else elapsed[i] + 1
            ended[i] = row[2] or row[3]
            assert_same(obs[i], row[0])
            assert (rew[i], term[i], trunc[i]) == row[1:4]
        assert rew.dtype == np.float32 and info["elapsed_step"].dtype == np.int32
        assert info["elapsed_step"].tolist() == elapsed
        assert info["env_id"].tolist() == info["players"]["env_id"].tolist() == [0, 1, 2, 3]
    assert any(elapsed[i] < len(ACTIONS) for i in range(4))


def test_a_program_of_send_and_recv_has_them_too(make: Any) -> None:
    env = make(CounterEnv, num_envs=5, batch_size=2, seed=list(range(10, 15)))
    assert env.is_async and len(env) == 5 and env.config["batch_size"] == 2
    env.async_reset()
    own: list[list[float]] = [[] for _ in range(5)]
    while min(map(len, own)) < 6:  # the first that are ready: on a busy machine one may be late for long
        obs, rew, term, trunc, info = env.recv()
        ids = info["env_id"]
        assert ids.shape == rew.shape == (2,) and ids.dtype == np.int32
        assert (obs[:, 1] == info["elapsed_step"]).all()
        for k, i in enumerate(ids):
            own[i].append(float(obs[k, 1]))
            assert term[k] == (obs[k, 1] == 3)
        env.send(np.ones(2, np.int64), ids)
    for steps in own:
        assert steps == [k % 4 for k in range(len(steps))]
    assert env.vector_env.get_attr("resets")[0] > 1


def test_recv_returns_what_reset_returns_where_it_is_told_so(make: Any) -> None:
    env = make(CounterEnv, num_envs=4, batch_size=2)
    env.async_reset()
    obs, info = env.recv(reset=True)
    assert obs.tolist() == [[1, 0], [1, 0]] and len(set(info["env_id"])) == 2
    with pytest.raises(ValueError, match="return_info=False"):
        env.recv(False, return_info=False)
    env.recv(timeout=60.0)
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        env.recv()


@pytest.mark.parametrize("kind", ["box", "dict", "tuple", "text"])
def test_rows_of_synchronous_steps_are_in_the_order_in_which_they_were_sent(make: Any, kind: str) -> None:
    def make_env() -> Any:
        return SpaceEnv(kind)

    env, straight = make(make_env, num_envs=3), make(make_env, num_envs=3)
    for each in (env, straight):
        each.reset()
    actions = spaces_actions(env.action_space)
    order = np.array([2, 0, 1])
    expected = straight.step(actions)
    obs, rew, term, trunc, info = env.step(taken(actions, order), order)
    assert info["env_id"].tolist() == [2, 0, 1]
    assert_same(obs, taken(expected[0], order))
    assert_same((rew, term, trunc), tuple(each[order] for each in expected[1:4]))
    env.send(taken(actions, order[1:]), order[1:])
    env.reset()  # throws them away
    env.send(taken(actions, order[:1]), order[:1])
    env.send(taken(actions, order[1:]), env_id=order[1:])
    assert env.recv()[4]["env_id"].tolist() == [2, 0, 1]


def spaces_actions(space: gymnasium.Space[Any]) -> Any:
    batched = gymnasium.vector.utils.batch_space(space, 3)
    batched.seed(0)
    return batched.sample()


def taken(batch: Any, rows: np.ndarray) -> Any:
    if isinstance(batch, dict):
        return {key: taken(part, rows) for key, part in batch.items()}
    if isinstance(batch, tuple):
        if all(isinstance(part, np.ndarray) for part in batch):
            return tuple(taken(part, rows) for part in batch)
        return tuple(batch[i] for i in rows)
    return batch[rows]


def test_some_of_those_that_are_stepped_together_are_refused_with_what_to_write(make: Any) -> None:
    env = make(CounterEnv, num_envs=3)
    env.reset()
    with pytest.raises(ValueError, match=r"step\(\) of 2 of 3 environments.*batch_size=2"):
        env.step(np.array([1, 1]), np.array([0, 2]))
    assert env.step(np.array([1, 2, 0]))[1].tolist() == [1.0, 2.0, 0.0]
    one_by_one = make(CounterEnv, num_envs=3, batch_size=2)
    obs, info = one_by_one.reset()
    for _ in range(9):
        obs, rew, _, _, info = one_by_one.step(info["env_id"] + 1, info["env_id"])
        assert obs.shape == (2, 2) and ((rew == info["env_id"] + 1) | (info["elapsed_step"] == 0)).all()


@pytest.mark.parametrize("batch_size", [0, 2])
def test_some_environments_are_reset(make: Any, batch_size: int) -> None:
    env = make(TellingEnv, num_envs=3, level=4, batch_size=batch_size)
    obs, info = env.reset(seed=7)
    assert len(obs) == (batch_size or 3)
    if batch_size:  # the first that are ready; the third is still to come
        env.send(np.ones(1, np.int64), info["env_id"][:1])
    else:
        env.send(np.ones(3, np.int64))
    env.recv()
    assert env.vector_env.get_attr("seed") == (7, 8, 9)
    obs, info = env.reset(np.array([2, 0]), seed=[1, 2, 3])
    assert info["env_id"].tolist() == [2, 0] and obs[:, 1].tolist() == [0, 0]
    assert env.vector_env.get_attr("seed")[::2] == (1, 3)
    mask = np.array([False, True, True])
    obs, info = env.reset(options={"reset_mask": mask, "asked": 6})
    assert info["env_id"].tolist() == [1, 2] and info["asked"].tolist() == [6, 6] and len(obs) == 2
    with pytest.raises(ValueError, match="not both"):
        env.reset(np.array([0]), options={"reset_mask": mask})
    with pytest.raises(ValueError, match=r"no environments \[7\]"):
        env.reset(np.array([7]))
    with pytest.raises(TypeError, match="numbers of environments"):
        env.reset(np.array([0.5]))


def test_infos_have_masks_only_where_some_said_nothing(make: Any) -> None:
    env = make(TellingEnv, num_envs=2, level=9)
    assert set(env.reset()[1]) == {"lives", "asked", "env_id", "players", "elapsed_step"}
    info = env.step(np.array([1, 1]))[4]
    assert set(info) == {"lives", "env_id", "players", "elapsed_step"} and info["lives"].tolist() == [8, 8]
    info = env.step(np.array([1, 2]))[4]
    assert info["two"].tolist() == info["_two"].tolist() == [False, True]


def test_elapsed_steps_in_the_other_ways_to_reset(make: Any) -> None:
    same = make(CounterEnv, num_envs=1, autoreset_mode="same_step")
    same.reset()
    elapsed = [int(same.step(np.array([1]))[4]["elapsed_step"][0]) for _ in range(5)]
    assert elapsed == [1, 2, 0, 1, 2]
    own = make(CounterEnv, num_envs=1, autoreset_mode="disabled")
    own.reset()
    assert [int(own.step(np.array([1]))[4]["elapsed_step"][0]) for _ in range(3)] == [1, 2, 3]
    own.reset(np.array([0]))
    assert own.step(np.array([1]))[4]["elapsed_step"].tolist() == [1]


def test_older_programs_name_environments_in_a_dict_and_assign_attributes(make: Any) -> None:
    env = make(CounterEnv, num_envs=2, batch_size=1)
    env.reset()
    env.recv()
    env.send({"action": np.array([2]), "env_id": np.array([1])})
    _, rew, _, _, info = env.recv()
    assert rew.tolist() == [2.0] and info["env_id"].tolist() == [1]
    env.num_envs, env.single_action_space, env.is_vector_env = 2, env.action_space, True
    env.spec.id = "mine"
    assert env.spec.id == "mine"
    assert env.step({"action": np.array([1]), "env_id": np.array([0])})[1].tolist() == [1.0]


def test_spaces_are_those_of_one_environment_and_a_spec_has_them(make: Any) -> None:
    env = make("CartPole-v1", num_envs=2, max_episode_steps=7)
    assert env.action_space == env.single_action_space == spaces.Discrete(2)
    assert env.observation_space.shape == (4,) and env.all_env_ids.tolist() == [0, 1]
    assert env.spec.config.max_episode_steps == env.config["max_episode_steps"] == 7
    spec = envpool.make_spec("CartPole-v1", num_envs=2, max_episode_steps=7)
    assert spec == env.spec and spec.reward_threshold == 475.0
    assert spec.gymnasium_action_space == env.action_space
    assert spec.gymnasium_observation_space == env.observation_space
    assert repr(env).startswith("EnvPool('CartPole-v1', num_envs=2, batch_size=2")
    env.reset()
    for _ in range(7):
        trunc, info = env.step(np.array([0, 1]) ^ (_ % 2))[3:]
    assert trunc.all() and info["elapsed_step"].tolist() == [7, 7]


def test_the_ids_that_there_are() -> None:
    ids = envpool.list_all_envs()
    assert {"CartPole-v1", "shoal/CartPole-v1"} <= set(ids) and len(ids) == len(set(ids))


def test_native_environments_step_in_threads(make: Any) -> None:
    env, processes = (make(each, num_envs=4, num_threads=2) for each in ("shoal/CartPole-v1", "CartPole-v1"))
    assert {worker["pid"] for worker in env.vector_env.stats()["workers"]} == {0}
    assert_same(env.reset()[0], processes.reset()[0])
    for actions in ACTIONS:
        assert_same(env.step(actions), processes.step(actions))


def test_threads_and_their_affinity(make: Any) -> None:
    env = make(CounterEnv, num_envs=4, num_threads=2, thread_affinity_offset=1)
    cpus = sorted(os.sched_getaffinity(0))
    pids = [worker["pid"] for worker in env.vector_env.stats()["workers"]]
    assert [os.sched_getaffinity(pid) for pid in pids] == [{cpus[(1 + i) % len(cpus)]} for i in range(2)]
    assert env.config["num_threads"] == 2 and env.config["thread_affinity_offset"] == 1


def test_other_options_are_make_vecs_or_the_environments(make: Any) -> None:
    env = make(TellingEnv, num_envs=2, level=6, frame_stack=2, reward_clip=(0, 1))
    assert env.vector_env.get_attr("level") == (6, 6) and env.observation_space.shape == (2, 2)
    env.reset()
    assert env.step(np.array([0, 2]))[1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("task_id", "arguments", "words"),
    [
        ("CartPole-v1", {"env_type": "dm"}, "take env_type='gymnasium'"),
        ("CartPole-v1", {"env_type": "jax"}, "take env_type='gymnasium'"),
        ("CartPole-v1", {"num_envs": 0}, "1 or more"),
        ("CartPole-v1", {"num_envs": 2, "batch_size": 3}, "1 to num_envs=2"),
        ("CartPole-v1", {"num_threads": -1}, "0 for one for each CPU"),
        ("CartPole-v1", {"num_workers": 2}, "num_threads"),
        ("CartPole-v1", {"seed": -3}, "0 or more"),
        ("CartPole-v1", {"max_num_players": 2}, "one player"),
        ("CartPole-v1", {"gym_reset_return_info": False}, "leave it out"),
        ("CartPole-v1", {"stack_num": 4}, "frame_stack"),
        ("CartPole-v1", {"reward_clip": True}, r"\(-1, 1\)"),
        ("CartPole-v1", {"from_pixels": True}, "AddRenderObservation"),
        ("ALE/Pong-v5", {"noop_max": 30}, r"make\('Pong-v5', …\) has it"),
    ],
)
def test_what_has_no_meaning_here_is_refused_with_what_to_write(
    task_id: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        envpool.make(task_id, **{"env_type": "gym", **arguments})


def test_the_other_names_of_make() -> None:
    with pytest.raises(ValueError, match="env_type='dm'"):
        envpool.make_dm("CartPole-v1", num_envs=2)
    with envpool.make_gym("CartPole-v1", num_envs=2) as env, envpool.make_gymnasium(CounterEnv, num_envs=3) as other:
        assert (env.num_envs, other.num_envs) == (2, 3)
    with pytest.raises(gymnasium.error.NameNotFound, match="CartPole"):
        envpool.make_gym("CartPolle-v1")


def test_seed_warns_and_xla_is_not_there(make: Any) -> None:
    env = make(CounterEnv)
    with pytest.warns(UserWarning, match="changes nothing"):
        env.seed(3)
    with pytest.raises(RuntimeError, match="recv"):
        env.xla()


def test_frames_are_those_of_the_environments_that_are_named(make: Any) -> None:
    env = make(TellingEnv, num_envs=3, seed=50, render_mode="rgb_array")
    env.reset()
    assert env.render().shape == (1, 2, 3, 3)
    assert env.render(env_ids=[2, 0])[:, 0, 0, 0].tolist() == [52, 50]
    other = make(TellingEnv, num_envs=3, seed=50, render_mode="rgb_array", render_env_id=1)
    other.reset()
    assert other.render()[:, 0, 0, 0].tolist() == [51]
    with pytest.raises(ValueError, match="camera"):
        env.render(camera_id=1)
    with pytest.raises(RuntimeError, match="render_mode"):
        make(TellingEnv).render()
    shown = make(TellingEnv, render_mode="human")
    shown.reset()
    assert shown.render() is None


def test_a_dead_worker_is_told_and_closes(make: Any) -> None:
    env = make(MortalEnv, num_envs=2, num_threads=2)
    env.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH):
        env.step(np.array([1, 2]))
    env.close(timeout=5.0)
    assert env.vector_env.closed
    env.close()


def test_a_lost_environment_begins_again(make: Any) -> None:
    env = make(CounterEnv, num_envs=2, num_threads=2, on_fault=shoal.FaultPolicy("restart", backoff=0.0))
    env.reset()
    env.step(np.array([1, 1]))
    os.kill(env.vector_env.stats()["workers"][1]["pid"], signal.SIGKILL)
    trunc, info = env.step(np.array([1, 1]))[3:]
    while not trunc[1]:
        trunc, info = env.step(np.array([1, 1]))[3:]
    assert info["_fault"].tolist() == [False, True]
    while "down" in (info := (result := env.step(np.array([1, 1])))[4]):
        pass
    obs = result[0]
    assert info["elapsed_step"][1] == 0 and obs[1].tolist() == [1, 0]


def test_a_pool_is_an_environment_of_gymnasiums_and_may_be_wrapped_as_one() -> None:
    envs = envpool.make("CartPole-v1", "gymnasium", num_envs=2)

    class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observations, rewards, *more = self.env.step(action)
            return observations, 2 * rewards, *more

    wrapped = Doubled(envs)
    assert wrapped.reset(seed=1)[0].shape == (2, 4)
    assert wrapped.step(np.zeros(2, int))[1].tolist() == [2, 2]
    wrapped.close()


def test_a_reset_throws_away_the_step_that_is_under_way() -> None:
    envs = envpool.make("CartPole-v1", "gymnasium", num_envs=2)
    first, _ = envs.reset(seed=3)
    envs.send(np.zeros(2, int))
    again, infos = envs.reset(seed=3)
    assert_same(again, first)
    assert infos["elapsed_step"].tolist() == [0, 0]
    assert envs.step(np.zeros(2, int))[4]["elapsed_step"].tolist() == [1, 1]
    envs.close()


class EchoingEnv(GatedEnv):
    """Its observation is its action, and how many steps it has made."""

    given = 0

    def step(self, action: Any) -> Any:
        self.given = int(action)
        return super().step(action)

    def _observation(self) -> np.ndarray:
        return np.array([self.given, self.steps], np.float64)


def test_actions_reach_their_environments_in_whatever_order_the_last_results_came(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with (
        shoal.WorkerPool(3) as pool,
        envpool.make(lambda: EchoingEnv(gate), "gymnasium", num_envs=3, pool=pool) as env,
    ):
        env.reset()
        env.send(np.array([1, 0, 2]))  # the first waits for the gate
        health = env.vector_env.health
        await_that(lambda: [worker["state"] == "idle" for worker in health()] == [False, True, True], "two results")
        gate.touch()
        assert env.recv()[0][:, 0].tolist() == [1, 0, 2]
        observations, rewards, *_, infos = env.step(np.array([2, 0, 1]))
        assert observations.tolist() == [[2, 2], [0, 2], [1, 2]] and rewards.tolist() == [2, 0, 1]
        assert infos["env_id"].tolist() == [0, 1, 2]


class FailingEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        if action == 2:
            raise LookupError("bad luck")
        return super().step(action)


@pytest.mark.parametrize("autoreset_mode", ["next_step", "same_step"])
def test_elapsed_steps_of_an_episode_that_begins_after_a_fault(make: Any, autoreset_mode: str) -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    env = make(FailingEnv, num_envs=2, num_threads=1, on_fault=fault, autoreset_mode=autoreset_mode)
    env.reset()
    env.step(np.array([1, 1]))
    trunc, info = env.step(np.array([1, 2]))[3:]
    assert trunc.tolist() == [False, True] and info["fault"][1].kind == "exception"
    while "down" in (info := (result := env.step(np.array([1, 1])))[4]):
        pass
    assert info["elapsed_step"][1] == result[0][1, 1] == 0
    obs, *_, info = env.step(np.array([1, 1]))
    assert info["elapsed_step"][1] == obs[1, 1] == 1


class NamingEnv(CounterEnv):
    def __init__(self, own: dict[str, Any]) -> None:
        super().__init__(length=99)
        self.own = own

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], self.own)


@pytest.mark.parametrize("batch_size", [2, 1])
@pytest.mark.parametrize("own", [{"fault": False}, {"fault": True}, {"down": 0}, {"down": 3}], ids=repr)
def test_infos_of_an_environment_that_are_called_as_faults_are_not_taken_for_them(
    make: Any, own: dict[str, Any], batch_size: int
) -> None:
    env = make(lambda: NamingEnv(own), num_envs=2, batch_size=batch_size, num_threads=1)
    ids = env.reset()[1]["env_id"]
    for steps in range(1, 5):
        for _ in range(1 if batch_size == 2 or steps == 1 else 2):
            *_, info = env.step(np.zeros(batch_size, np.int64), ids)
            ids = info["env_id"]
    (key, value), *_ = own.items()
    told = env.recv()[4] if batch_size == 1 else info
    assert told["elapsed_step"].tolist() == [4] * batch_size and told[key].tolist() == [value] * batch_size
