"""Statistics, time limit, frame stack and reward clip in the engine, step for step against Gymnasium's wrappers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import ClipReward, FrameStackObservation, TimeLimit
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import shoal
from same import assert_same

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
    "native-serial": {"backend": "serial"},
    "native-thread": {"backend": "thread", "num_workers": 2},
    "native-process": {"backend": "process", "num_workers": 2},
}
Make = Callable[..., shoal.VectorEnv]


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[shoal.VectorEnv] = []

    def make_and_keep(name: str, *args: Any, **kwargs: Any) -> shoal.VectorEnv:
        env = f"shoal/{name}" if request.param.startswith("native") else name
        made.append(shoal.make_vec(env, *args, **{**BACKENDS[request.param], **kwargs}))
        return made[-1]

    yield make_and_keep
    for envs in made:
        envs.close()


def without_times(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The clock is nobody's to compare: only that it ran."""
    infos = dict(result[-1])
    if "episode" in infos:
        episode = dict(infos["episode"])
        times = episode.pop("t")
        assert times.dtype == np.float64 and (times[infos["_episode"]] >= 0).all() and (times < 60).all()
        assert (times[~infos["_episode"]] == 0).all()
        infos["episode"] = episode
    return (*result[:-1], infos)


def play(ours: gymnasium.vector.VectorEnv, theirs: gymnasium.vector.VectorEnv, steps: int) -> int:
    """Both step with the same actions; the number of episodes that ended."""
    assert_same(ours.reset(seed=5), theirs.reset(seed=5), "reset")
    ours.action_space.seed(5)
    ended = 0
    for step in range(steps):
        actions = ours.action_space.sample()
        mine, other = ours.step(actions), theirs.step(actions)
        assert_same(without_times(mine), without_times(other), f"step {step}")
        ended += int((mine[2] | mine[3]).sum())
    theirs.close()
    return ended


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_statistics_are_those_of_record_episode_statistics(make: Make, mode: str) -> None:
    ours = make("CartPole-v1", 4, autoreset_mode=mode, episode_statistics=True)
    theirs = RecordEpisodeStatistics(
        SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, autoreset_mode=getattr(AutoresetMode, mode.upper()))
    )
    assert play(ours, theirs, 200) > 8


class Telling(gymnasium.Wrapper):
    """Its infos have an "episode" of their own: a number, or statistics."""

    def __init__(self, env: gymnasium.Env, statistics: bool) -> None:
        super().__init__(env)
        self.statistics = statistics

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        own = {"r": 7.0, "l": 3} if self.statistics else 7
        return (*result, {**info, "episode": own})


def test_what_an_environment_itself_calls_an_episode_is_never_taken_for_statistics() -> None:
    for statistics in (False, True):
        wrapper = functools.partial(Telling, statistics=statistics)
        arguments = {"num_workers": 1, "episode_statistics": True, "max_episode_steps": 2, "wrappers": [wrapper]}
        with shoal.make_vec("CartPole-v1", 2, **arguments) as ours:
            ours.reset(seed=0)
            ours.step([0, 0])
            if statistics:
                assert ours.step([0, 0])[-1]["episode"]["r"].tolist() == [7.0, 7.0]
                continue
            with pytest.raises(
                ValueError, match=r"infos\['episode'\], which is also a key of an environment's own info"
            ):
                ours.step([0, 0])
            assert ours.step([0, 0])[1].tolist() == [0, 0], "the next episodes have begun"


def test_statistics_go_on_after_a_masked_reset(make: Make) -> None:
    ours = make("CartPole-v1", 2, autoreset_mode="disabled", episode_statistics=True, max_episode_steps=4)
    ours.reset(seed=0)
    for _ in range(2):
        ours.step([0, 1])
    ours.reset(options={"reset_mask": np.array([True, False])})
    for _ in range(2):
        infos = ours.step([1, 0])[-1]
    assert infos["episode"]["l"].tolist() == [0, 4] and infos["_episode"].tolist() == [False, True]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("way", [{}, {"cohorts": 1}], ids=["together", "one by one"])
def test_a_masked_reset_tells_of_no_episode_again(make: Make, mode: str, way: dict[str, Any]) -> None:
    ours = make("CartPole-v1", 3, autoreset_mode=mode, episode_statistics=True, max_episode_steps=4, **way)

    def step() -> dict[str, Any]:
        ours.send([0, 1, 0], [0, 1, 2])
        return ours.recv()[-1]

    ours.reset(seed=0)
    step(), step()
    assert "episode" not in ours.reset(options={"reset_mask": np.array([True, False, False])})[1]
    step()
    infos = step()
    assert infos["_episode"].tolist() == [False, True, True]
    for rows in ([False, True, False], [True, False, False]):
        infos = ours.reset(options={"reset_mask": np.array(rows)})[1]
        assert not {"episode", "final_obs", "final_info", "fault"} & infos.keys()
    if mode == "disabled":
        ours.reset(options={"reset_mask": np.array([False, False, True])})
    counted = np.zeros(3, int)
    for _ in range(12):
        infos = step()
        if "episode" in infos:
            assert set(infos["episode"]["l"][infos["_episode"]].tolist()) == {4}
            counted += infos["_episode"]
            if mode == "disabled":
                ours.reset(options={"reset_mask": infos["_episode"]})
    assert counted.tolist() == ([2, 2, 2] if mode == "next_step" else [3, 3, 3])


def test_the_time_limit_is_that_of_gymnasium(make: Make) -> None:
    ours = make("Pendulum-v1", 3, max_episode_steps=7)
    theirs = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7)] * 3)
    assert play(ours, theirs, 40) == 15


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_frames_are_stacked_as_frame_stack_observation_does(make: Make, mode: str) -> None:
    ours = make("CartPole-v1", 3, frame_stack=4, autoreset_mode=mode)
    theirs = SyncVectorEnv(
        [lambda: FrameStackObservation(gymnasium.make("CartPole-v1"), 4)] * 3,
        autoreset_mode=getattr(AutoresetMode, mode.upper()),
    )
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert play(ours, theirs, 150) > 8


def test_rewards_are_clipped_after_they_are_counted(make: Make) -> None:
    ours = make("Pendulum-v1", 2, reward_clip=(-2.5, -0.5), episode_statistics=True, max_episode_steps=20)
    theirs = SyncVectorEnv([lambda: ClipReward(gymnasium.make("Pendulum-v1", max_episode_steps=20), -2.5, -0.5)] * 2)
    raw = make("Pendulum-v1", 2, max_episode_steps=20)
    ours.reset(seed=1), theirs.reset(seed=1), raw.reset(seed=1)
    ours.action_space.seed(1)
    returns = np.zeros(2)
    for _ in range(20):
        actions = ours.action_space.sample()
        mine = ours.step(actions)
        assert_same(mine[:4], theirs.step(actions)[:4], "step")
        returns += raw.step(actions)[1]
    assert mine[-1]["episode"]["r"] == pytest.approx(returns, abs=0)
    theirs.close()


class Everything(gymnasium.Env[Any, Any]):
    """A Dict of all kinds of spaces, drawn at random."""

    def __init__(self, length: int = 6) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (3, 4), np.uint8),
                "pair": spaces.Tuple((spaces.Discrete(5), spaces.MultiDiscrete([2, 3]))),
                "bits": spaces.MultiBinary(3),
            }
        )
        self.action_space = spaces.Discrete(2)
        self.length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.tick = 0
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.tick += 1
        return self.observation_space.sample(), self.tick * 10.0, self.tick >= self.length, False, {}


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_all_of_it_on_an_environment_of_ones_own(backend: str) -> None:
    ours = shoal.make_vec(
        Everything,
        3,
        backend=backend,
        frame_stack=2,
        max_episode_steps=4,
        reward_clip=(15, 25),
        episode_statistics=True,
    )
    theirs = SyncVectorEnv([lambda: FrameStackObservation(ClipReward(TimeLimit(Everything(), 4), 15, 25), 2)] * 3)
    for name in ("image", "pair", "bits"):
        assert ours.single_observation_space[name] == theirs.single_observation_space[name], name
    assert_same(ours.reset(seed=3), theirs.reset(seed=3), "reset")
    for step in range(17):
        mine, other = ours.step([0, 1, 0]), theirs.step([0, 1, 0])
        assert_same(mine[:4], other[:4], f"step {step}")
        if mine[3].any():
            assert mine[-1]["episode"]["r"].tolist() == [100.0] * 3 and mine[-1]["episode"]["l"].tolist() == [4] * 3
    ours.close(), theirs.close()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"frame_stack": 0}, ValueError, "at least 1"),
        ({"frame_stack": 2.0}, TypeError, "takes an int"),
        ({"max_episode_steps": -1}, ValueError, "at least 1"),
        ({"reward_clip": (1, -1)}, ValueError, "lower bound first"),
        ({"reward_clip": 1}, TypeError, "two numbers"),
        ({"max_episode_steps": 5, "env_kwargs": {"max_episode_steps": 6}}, ValueError, "twice"),
    ],
)
def test_wrong_options_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    for env in ("CartPole-v1", "shoal/CartPole-v1"):
        with pytest.raises(error, match=message):
            shoal.make_vec(env, 2, **arguments)


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
)
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_native_resets_take_gymnasiums_options(name: str, backend: str) -> None:
    ours = shoal.make_vec(f"shoal/{name}", 3, backend=backend, num_workers=0 if backend == "serial" else 2)
    theirs = SyncVectorEnv([lambda: gymnasium.make(name)] * 3)
    choices = [{"low": -0.9, "high": 0.3}, {"high": 1.7}, {"low": -2.5}, None, {}]
    if name == "Pendulum-v1":
        choices = [{"x_init": 0.2, "y_init": 3}, {"x_init": 2.5}, None]
    for options in choices:
        for seed in (1, None, 3):
            mine, other = ours.reset(seed=seed, options=options), theirs.reset(seed=seed, options=options)
            assert_same(mine, other, f"{options} {seed}")
    # Automatic resets have none.
    ours.reset(seed=0, options=choices[0]), theirs.reset(seed=0, options=choices[0])
    ours.action_space.seed(0)
    for step in range(210):
        actions = ours.action_space.sample()
        assert_same(ours.step(actions)[:4], theirs.step(actions)[:4], f"step {step}")
    ours.close(), theirs.close()


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_options_that_a_native_reset_does_not_take_change_nothing(backend: str) -> None:
    envs = shoal.make_vec("shoal/CartPole-v1", 3, backend=backend, num_workers=0 if backend == "serial" else 2)
    first = envs.reset(seed=0)[0]
    for options, message in (
        ({"hight": 1}, "hight"),
        ({"low": 1, "high": 0}, "lower bound"),
        ({"low": "x"}, "low='x'"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.reset(seed=0, options=options)
    assert np.array_equal(envs.reset(seed=0)[0], first)
    envs.close()
