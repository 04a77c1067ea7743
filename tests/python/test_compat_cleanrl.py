"""shoal.compat.cleanrl: what CleanRL's scripts read of Gymnasium 0.29's vector environments."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics

import shoal
import shoal.compat.gymnasium as compat
from same import assert_same
from sample_envs import TOLD_OF_DEATH, CounterEnv, MortalEnv, die
from shoal.compat.cleanrl import AsyncVectorEnv, SyncVectorEnv, gym

KINDS = pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
ACTIONS = np.random.default_rng(0).integers(0, 2, (60, 3))


def make_env(env_id: str) -> Callable[[], Any]:
    """As CleanRL's scripts have it."""

    def thunk() -> Any:
        return RecordEpisodeStatistics(gymnasium.make(env_id))

    return thunk


@KINDS
def test_a_scripts_loop_finds_every_episode_and_its_last_observation(kind: Any) -> None:
    envs = kind([make_env("CartPole-v1")] * 3)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    singles = [gymnasium.make("CartPole-v1") for _ in range(3)]
    obs, _ = envs.reset(seed=1)
    assert_same(obs, np.stack([single.reset(seed=1 + i)[0] for i, single in enumerate(singles)]))
    lengths, expected, told = [0] * 3, [], []
    for actions in ACTIONS:
        next_obs, _, terminations, truncations, infos = envs.step(actions)
        ended = []
        for i, single in enumerate(singles):
            observation, _, terminated, truncated, _ = single.step(actions[i])
            lengths[i] += 1
            if terminated or truncated:
                assert_same(infos["final_observation"][i], observation)
                expected.append(lengths[i])
                ended.append(i)
                lengths[i], observation = 0, single.reset()[0]
            assert_same(next_obs[i], observation)
        assert np.flatnonzero(terminations | truncations).tolist() == ended
        if "final_info" in infos:
            for info in infos["final_info"]:
                if info and "episode" in info:
                    told.append(int(info["episode"]["l"]))
        assert [i for i in range(3) if infos.get("_final_info", [False] * 3)[i]] == ended
        assert ("final_observation" in infos) == ("final_info" in infos) == bool(ended)
        for key in ("final_observation", "final_info"):
            assert [i for i in range(3) if infos.get(key, [None] * 3)[i] is not None] == ended
    assert told == expected and len(told) > 2
    envs.close()


class TellingEnv(CounterEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed, options=options)[0], {"begun": self.resets}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *result, info = super().step(action)
        return *result, {**info, "at": self.steps}  # type: ignore[return-value]


@KINDS
def test_infos_of_the_episode_that_begins_are_arrays_beside_those_of_the_one_that_ended(kind: Any) -> None:
    envs = kind([TellingEnv, lambda: TellingEnv(4)])
    assert envs.reset()[1]["begun"].tolist() == [1, 1]
    for _ in range(2):
        infos = envs.step([0, 0])[4]
    assert infos["at"].tolist() == [2, 2] and "final_info" not in infos
    infos = envs.step([0, 0])[4]
    assert infos["final_info"].tolist() == [{"at": 3}, None] and infos["_final_observation"].tolist() == [True, False]
    assert infos["begun"].tolist() == [2, 0] and infos["_begun"].tolist() == [True, False]
    assert infos["at"].tolist() == [0, 3] and infos["_at"].tolist() == [False, True]
    envs.close()


def has_views(envs: Any) -> bool:
    first = envs.reset()[0]
    shared = np.shares_memory(first, envs.step([0, 0])[0])
    envs.close()
    return shared


def test_copy_says_whether_observations_are_views_in_this_process() -> None:
    assert [has_views(SyncVectorEnv([CounterEnv] * 2, copy=copy)) for copy in (True, False)] == [False, True]


def test_copy_says_whether_observations_of_workers_are_views() -> None:
    assert [has_views(AsyncVectorEnv([CounterEnv] * 2, copy=copy)) for copy in (True, False)] == [False, True]


def test_workers_share_environments_where_that_is_asked() -> None:
    for workers, expected in ((None, 3), (2, 2)):
        envs = AsyncVectorEnv([CounterEnv] * 3, num_workers=workers)
        assert len(envs.processes) == expected
        envs.close()


def test_a_killed_worker_is_told() -> None:
    envs = AsyncVectorEnv([MortalEnv] * 2)
    envs.reset()
    with pytest.raises(shoal.WorkerDied, match=TOLD_OF_DEATH):
        envs.step([0, 2])
    envs.close()


def test_a_killed_worker_is_replaced_where_that_is_asked() -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    envs = AsyncVectorEnv([MortalEnv] * 2, on_fault=fault, worker_options=shoal.WorkerOptions(threads=2))
    envs.reset()
    _, _, terminated, truncated, infos = envs.step([0, 2])
    assert truncated.tolist() == [False, True] and not terminated.any()
    assert infos["fault"][1].signal == signal.SIGKILL
    assert infos["final_info"].tolist() == [None, {}] and infos["_final_observation"].tolist() == [False, True]
    assert infos["final_observation"][0] is None and infos["final_observation"][1].tolist() == [1, 0]
    ends = 0
    while ends < 2:  # of the new environment, as of any other
        ended = envs.step([1, 1])[4].get("final_observation", [None, None])[1]
        if ended is not None:
            ends += 1
            assert ended.tolist() == [ends, 3]
    envs.close()


def trained(envs: Any, last_observations: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """The parameters after an actor-critic, to which the last observation of an episode that was cut short matters."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    observations = envs.reset(seed=3)[0]
    ends = 0
    for _ in range(100):
        out = model(torch.from_numpy(observations))
        policy = torch.distributions.Categorical(logits=out[:, :2])
        actions = policy.sample()
        observations, rewards, terminated, truncated, infos = envs.step(actions.numpy())
        following = observations.copy()
        for row in np.flatnonzero(terminated | truncated):
            following[row] = last_observations(infos)[row]
            ends += 1
        with torch.no_grad():
            values = model(torch.from_numpy(following))[:, 2]
        advantages = torch.from_numpy(rewards + 0.99 * ~terminated * values.numpy()).float() - out[:, 2]
        loss = (advantages**2 - policy.log_prob(actions) * advantages.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    envs.close()
    assert ends > 10
    return [value.detach().clone() for value in model.parameters()]


def test_training_is_that_of_gymnasiums_own_classes_bit_for_bit() -> None:
    torch = pytest.importorskip("torch")
    fns = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=15)] * 3
    same_step = AutoresetMode.SAME_STEP
    expected = trained(gymnasium.vector.SyncVectorEnv(fns, autoreset_mode=same_step), lambda infos: infos["final_obs"])
    for envs, key in [
        (SyncVectorEnv(fns), "final_observation"),
        (AsyncVectorEnv(fns, num_workers=2), "final_observation"),
        (compat.SyncVectorEnv(fns, autoreset_mode=same_step), "final_obs"),
        (compat.AsyncVectorEnv(fns, autoreset_mode=same_step), "final_obs"),
    ]:
        found = trained(envs, lambda infos, key=key: infos[key])
        assert all(torch.equal(own, other) for own, other in zip(found, expected, strict=True)), envs


class PictureEnv(CounterEnv):
    observation_space = gymnasium.spaces.Box(0, 255, (6, 5, 3), np.uint8)

    def _observation(self) -> np.ndarray:
        return np.full((6, 5, 3), 10 * self.steps + 3, np.uint8)


def test_a_scripts_gym_has_the_wrappers_that_it_was_written_for() -> None:
    def make_picture() -> Any:
        env: Any = gym.wrappers.GrayScaleObservation(PictureEnv(4))
        env = gym.wrappers.TransformObservation(env, lambda seen: seen + 1)
        env = gym.wrappers.TransformReward(env, lambda reward: 2 * reward)
        return gym.wrappers.FrameStack(gym.wrappers.RecordEpisodeStatistics(env), 2)

    assert gym.make is gymnasium.make and gym.spaces is gymnasium.spaces and gym.vector.SyncVectorEnv is SyncVectorEnv
    assert gym.wrappers.RecordEpisodeStatistics is RecordEpisodeStatistics
    envs = gym.vector.AsyncVectorEnv([make_picture] * 2, num_workers=1)
    assert envs.single_observation_space.shape == (2, 6, 5)
    seen = envs.reset()[0]
    assert [picture.max() for picture in seen[0]] == [4, 4]
    seen, rewards, *_ = envs.step([1, 2])
    assert [picture.min() for picture in seen[1]] == [4, 14] and rewards.tolist() == [2.0, 4.0]
    for _ in range(3):
        infos = envs.step([0, 0])[4]
    assert infos["final_info"][1]["episode"]["r"] == 4.0
    assert gym.wrappers.GrayScaleObservation(PictureEnv(), keep_dim=True).observation_space.shape == (6, 5, 1)
    envs.close()


def test_a_lost_row_has_a_last_observation_beside_one_that_ended() -> None:
    fault = shoal.FaultPolicy("restart", backoff=0.0)
    envs = AsyncVectorEnv([MortalEnv] * 3, on_fault=fault)
    envs.reset()
    for actions in ([0, 0, 0], [0, 0, 0]):
        envs.step(actions)
    following, _, terminated, truncated, infos = envs.step([0, 2, 0])  # as CleanRL's loops over a replay read it
    assert (terminated | truncated).all() and infos["_final_info"].all()
    finals = np.stack(list(infos["final_observation"])).astype(np.float64)
    assert finals.tolist() == [[1, 3], [1, 2], [1, 3]]
    following[1] = -1
    assert infos["final_observation"][1].tolist() == [1, 2], "it is a copy"
    envs.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_arguments_are_those_of_0_29(kind: Any) -> None:
    spaces = CounterEnv.observation_space, CounterEnv.action_space
    kind([CounterEnv] * 2, *spaces, copy=False).close()
    with pytest.raises(RuntimeError, match=r"action_space=Discrete\(7\).*have another, Discrete\(3\)"):
        kind([CounterEnv], None, gymnasium.spaces.Discrete(7))


def test_a_worker_of_pipes_is_refused_and_not_another_class() -> None:
    AsyncVectorEnv([CounterEnv], shared_memory=False, context="forkserver", daemon=False).close()
    with pytest.raises(ValueError, match="worker"):
        AsyncVectorEnv([CounterEnv], worker=lambda *_: None)


def test_a_script_may_print_the_version() -> None:
    assert gym.__version__ == gymnasium.__version__


class LostEnv(TellingEnv):
    """Action 1 is an exception, action 2 ends its process. Environment 1 dies in its first reset after an exception, where `folder`
    says that there was one."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(9)
        self.folder = folder

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.folder is not None and (self.folder / "failed").exists():
            (self.folder / "failed").unlink()
            die()
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "own": {"seed": seed or 0}}

    def step(self, action: Any) -> Any:
        if action == 2:
            die()
        if action == 1:
            if self.folder is not None:
                (self.folder / "failed").touch()
            raise LookupError("bad luck")
        return super().step(action)


RESTART = shoal.FaultPolicy("restart", backoff=0.0)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(("action", "kind"), [(1, "exception"), (2, "killed")])
def test_a_step_that_loses_an_environment_begins_the_next_episode(action: int, kind: str, copy: bool) -> None:
    seeds = []
    for _ in range(2):
        envs = AsyncVectorEnv([LostEnv] * 2, on_fault=RESTART, copy=copy)
        envs.reset(seed=7)
        envs.step([0, 0])
        observations, rewards, terminated, truncated, infos = envs.step([0, action])
        assert truncated.tolist() == [False, True] and not terminated.any() and rewards.tolist() == [0, 0]
        assert observations.tolist() == [[1, 2], [1, 0]] and infos["final_observation"][1].tolist() == [1, 1]
        assert infos["fault"][1].kind == kind and infos["_fault"].tolist() == [False, True]
        assert infos["begun"].tolist() == [0, 1] and infos["_begun"].tolist() == [False, True]
        assert infos["at"].tolist() == [2, 0] and infos["_at"].tolist() == [True, False]
        seeds.append(int(infos["own"]["seed"][1]))
        observations, _, terminated, truncated, infos = envs.step([0, 0])
        assert observations.tolist() == [[1, 3], [1, 1]] and infos["at"].tolist() == [3, 1]
        assert not terminated.any() and not truncated.any() and "final_observation" not in infos
        envs.close()
    assert seeds[0] == seeds[1] > 8, "it follows from the last one that the row was given"


def test_those_that_are_lost_in_the_reset_of_another_are_cut_short(tmp_path: Path) -> None:
    envs = AsyncVectorEnv([LostEnv, lambda: LostEnv(tmp_path), LostEnv], num_workers=1, on_fault=RESTART)
    envs.reset()
    observations, _, terminated, truncated, infos = envs.step([0, 1, 0])
    assert truncated.all() and not terminated.any() and observations.tolist() == [[1, 0]] * 3
    assert [fault.kind for fault in infos["fault"]] == ["killed", "exception", "killed"]
    assert [last.tolist() for last in infos["final_observation"]] == [[1, 1], [1, 0], [1, 1]]
    assert infos["begun"].tolist() == [1, 1, 1] and infos["at"].tolist() == [1, 0, 1]
    assert envs.step([0, 0, 0])[0].tolist() == [[1, 1]] * 3
    envs.close()


def test_a_reset_that_loses_an_environment_returns_the_first_observation_of_a_new_one(tmp_path: Path) -> None:
    envs = AsyncVectorEnv([LostEnv, lambda: LostEnv(tmp_path)], on_fault=RESTART)
    (tmp_path / "failed").touch()
    observations, infos = envs.reset(seed=3)
    assert observations.tolist() == [[1, 0]] * 2 and infos["begun"].tolist() == [1, 1]
    assert infos["fault"][1].kind == "killed" and infos["own"]["seed"][0] == 3
    observations, _, _, truncated, _ = envs.step([0, 0])
    assert observations.tolist() == [[1, 1]] * 2 and not truncated.any()
    envs.close()


class SayingEnv(LostEnv):
    """Says one thing at a reset, and another at a step; the options of a reset beside it. Its episodes last two steps."""

    def __init__(self, at_reset: Any = None, at_step: Any = None) -> None:
        super().__init__()
        self.length = 2
        self.at_reset, self.at_step = at_reset, at_step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"o": options, "said": self.at_reset}

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, {"said": self.at_step}


def test_a_lost_environment_is_begun_again_without_options_as_one_that_ended() -> None:
    """Those in the places of lost ones were given {} and the others None, whose infos cannot be joined."""
    envs = AsyncVectorEnv([SayingEnv] * 2, on_fault=RESTART)
    assert envs.reset(options={"x": 1})[1]["o"]["x"].tolist() == [1, 1]
    envs.step([0, 0])
    _, _, terminated, truncated, infos = envs.step([0, 1])
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, True])
    assert infos["o"].tolist() == [None, None] and infos["_o"].all()
    envs.close()


@pytest.mark.parametrize(
    ("at_reset", "at_step", "expected"),
    [
        (0.5, 3, [3, 0.5]),
        (1, True, [True, 1]),
        ("begun", 3, [3, "begun"]),
        ({"x": 1, "y": {"z": 2.5}}, 3, [3, {"x": 1, "y": {"z": 2.5}}]),
        (0.5, {"x": 1}, [{"x": 1}, 0.5]),
        (None, {"x": 1}, [{"x": 1}, None]),
        ([1, 2], [3], [[3], [1, 2]]),
    ],
)
def test_infos_of_two_kinds_are_objects_where_an_environment_is_lost(
    at_reset: Any, at_step: Any, expected: Any
) -> None:
    """A float was written into an array of ints, and a dict could not be joined."""
    values = [np.array(value) if isinstance(value, list) else value for value in (at_reset, at_step)]
    envs = AsyncVectorEnv([lambda: SayingEnv(*values)] * 2, on_fault=RESTART)
    envs.reset()
    said = envs.step([0, 1])[4]["said"]
    assert said.dtype == object and [np.asarray(one).tolist() for one in said] == expected
    assert [type(one) for one in said if isinstance(one, dict)] == [dict for one in expected if isinstance(one, dict)]
    envs.close()
