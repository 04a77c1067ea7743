"""shoal.compat.sb3: the contract of Stable-Baselines3's vectorised environments, and what its users meet."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common import env_util
from stable_baselines3.common import vec_env as peer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from same import assert_same
from sample_envs import CounterEnv, FaultyEnv, SpaceEnv
from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv, make_vec_env

CLASSES = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
SPACE_NAMES = "box box_scalar box_float64 image discrete discrete_start multi_discrete multi_binary dict tuple".split()


@pytest.fixture(params=CLASSES)
def vec_env(request: pytest.FixtureRequest) -> Any:
    return CLASSES[request.param]


class TalkingEnv(SpaceEnv):
    """Episodes end, are cut short, or both; infos of every kind, of which it changes the last ones afterwards."""

    def __init__(self, observation: str = "box") -> None:
        super().__init__(observation, "discrete", render_mode="rgb_array")
        self.said: list[dict[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "of": "reset"}

    def step(self, action: Any) -> Any:
        for info in self.said:
            info.setdefault("list", []).append("too late")
        observation, reward, terminated, truncated, info = super().step(action)
        self.said = [info]
        return observation, float(reward), terminated, truncated or bool(terminated and reward > 0.5), info


def as_lists(infos: Any) -> list[dict[str, Any]]:
    return [dict(info) for info in infos]


# What both classes do, as the peer does it


@pytest.mark.parametrize("name", SPACE_NAMES)
def test_results_are_the_peers(vec_env: Any, name: str) -> None:
    factories = [functools.partial(TalkingEnv, name)] * 3
    ours, theirs = vec_env(factories), peer.DummyVecEnv(factories)
    for envs in (ours, theirs):
        envs.seed(5)
    assert_same(ours.reset(), theirs.reset())
    assert_same(as_lists(ours.reset_infos), as_lists(theirs.reset_infos))
    ended = cut = 0
    for i in range(60):
        actions = np.array([i, i + 1, i + 2]) % 5
        observations, rewards, dones, infos = ours.step(actions)
        expected = theirs.step(actions)
        assert_same(observations, expected[0])
        assert rewards.astype(np.float32).tolist() == expected[1].tolist()
        assert_same(dones, expected[2])
        assert isinstance(infos, list)
        assert_same([sorted(info.items()) for info in infos], [sorted(info.items()) for info in expected[3]])
        assert all(type(info["TimeLimit.truncated"]) is bool for info in infos)
        assert_same(as_lists(ours.reset_infos), as_lists(theirs.reset_infos))
        ended += int(dones.sum())
        cut += sum(info["TimeLimit.truncated"] for info in infos)
    assert ended > cut > 0
    ours.close()


def test_spaces_and_render_modes_are_the_first_environments(vec_env: Any) -> None:
    envs = vec_env([functools.partial(TalkingEnv, "dict")] * 2)
    assert isinstance(envs, peer.VecEnv) and isinstance(envs, getattr(peer, vec_env.__name__))
    assert (envs.num_envs, envs.render_mode, envs.unwrapped) == (2, "rgb_array", envs)
    assert envs.observation_space == TalkingEnv("dict").observation_space
    assert envs.action_space == spaces.Discrete(5)
    assert envs.render().shape == (8, 4, 3) and [image.shape for image in envs.get_images()] == [(4, 4, 3)] * 2
    with pytest.warns(UserWarning, match="has to be the same as the environment render mode"):
        assert envs.render("ansi") is None
    envs.close()
    blind = vec_env([CounterEnv])
    assert blind.render_mode is None
    with pytest.warns(UserWarning, match="no `render_mode` was passed"):
        assert blind.render() is None
    with pytest.warns(UserWarning, match="this method assumes it is `rgb_array`"):
        assert list(blind.get_images()) == [None]
    blind.close()


def test_environments_of_several_render_modes_are_refused(vec_env: Any) -> None:
    factories = [functools.partial(SpaceEnv, render_mode=mode) for mode in (None, "rgb_array")]
    with pytest.raises(AssertionError, match="render_mode mode should be the same"):
        vec_env(factories)


def test_seeds_and_options_are_those_of_the_next_reset_alone(vec_env: Any) -> None:
    envs = vec_env([CounterEnv] * 3)
    assert list(envs.seed(7)) == [7, 8, 9]
    envs.set_options([{"a": 1}, {}, {"b": 2}])
    envs.reset()
    assert envs.reset_infos == [{"seed": 7, "options": {"a": 1}}, {"seed": 8}, {"seed": 9, "options": {"b": 2}}]
    envs.reset()
    assert list(envs.reset_infos) == [{}, {}, {}]
    envs.set_options({"c": 3})
    envs.reset()
    assert list(envs.reset_infos) == [{"options": {"c": 3}}] * 3
    envs.seed(2**80)
    envs.reset()
    assert envs.get_attr("seed") == [2**80, 2**80 + 1, 2**80 + 2]
    envs.close()


class OldFashionedEnv(CounterEnv):
    """Takes a seed and no options, as the peer lets it."""

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


def test_an_environment_is_given_options_only_where_there_are_some(vec_env: Any) -> None:
    envs = vec_env([functools.partial(OldFashionedEnv, 1)] * 2)
    envs.reset()
    observations, _, dones, infos = envs.step(np.array([0, 1]))
    assert dones.all() and observations.tolist() == [[2, 0], [2, 0]]
    assert [info["terminal_observation"].tolist() for info in infos] == [[1, 1], [1, 1]]
    envs.close()


def test_attributes_and_methods_are_reached_by_indices(vec_env: Any) -> None:
    envs = vec_env([functools.partial(CounterEnv, length) for length in (10, 11, 12, 13)])
    assert envs.get_attr("length") == [10, 11, 12, 13]
    assert envs.get_attr("length", 2) == [12] and envs.get_attr("length", indices=-1) == [13]
    assert envs.get_attr("length", indices=np.array([3, 0, 0])) == [13, 10, 10]
    assert envs.get_attr("length", indices=iter([1, -3])) == [11, 11]
    assert envs.get_attr("length", indices=[]) == []
    assert envs.set_attr("length", 5, indices=[0, 3]) is None
    assert envs.get_attr("length") == [5, 11, 12, 5]
    assert callable(envs.get_attr("reset", 0)[0]) and envs.has_attr("length") and not envs.has_attr("width")
    assert envs.env_method("__getattribute__", "length", indices=[2, 1]) == [12, 11]
    assert [info for _, info in envs.env_method("reset", seed=3)] == [{"seed": 3}] * 4
    for wrong in (4, -5, [0, 9]):
        with pytest.raises(IndexError, match="there is no environment .*, they are 0 to 3"):
            envs.env_method("reset", indices=wrong)
    with pytest.raises(TypeError, match="indices are None, an int, or ints, got 'first'"):
        envs.get_attr("length", indices="first")
    with pytest.raises(AttributeError, match="width"):
        envs.get_attr("width")
    assert envs.get_attr("length", 1) == [11]  # nothing is the worse for it
    envs.close()


def test_an_attribute_is_set_on_the_outermost_wrapper(vec_env: Any) -> None:
    envs = vec_env([lambda: Monitor(CounterEnv())])
    envs.set_attr("length", 99)
    assert envs.get_attr("length") == [99]
    assert envs.env_method("get_wrapper_attr", "unwrapped")[0].length == 3
    envs.env_method("set_wrapper_attr", "steps", 2)
    assert envs.get_attr("steps") == [2]
    envs.close()


class Outer(gymnasium.Wrapper):
    pass


def test_wrappers_of_the_environments_are_found(vec_env: Any) -> None:
    class Local(gymnasium.Wrapper):
        pass

    envs = vec_env([CounterEnv, lambda: Outer(Monitor(CounterEnv())), lambda: Local(CounterEnv())])
    assert envs.env_is_wrapped(Monitor) == [False, True, False]
    assert envs.env_is_wrapped(Outer, indices=[1, 0]) == [True, False]
    assert envs.env_is_wrapped(Local) == [False, False, True]
    assert envs.env_is_wrapped((Monitor, Local)) == [False, True, True]
    envs.close()


def test_an_infos_dict_is_the_callers(vec_env: Any) -> None:
    envs = vec_env([functools.partial(CounterEnv, 2)] * 2)
    envs.reset()
    first = envs.step(np.array([1, 2]))
    kept = [array.copy() for array in first[:3]], [dict(info) for info in first[3]]
    for info in first[3]:
        info["mine"] = True
    first[1][0] += 0.25
    second = envs.step(np.array([0, 0]))
    envs.reset()
    assert first[0].tolist() == kept[0][0].tolist() and first[1].tolist() == [1.25, 2.0]
    assert "mine" not in second[3][0] and second[3][0]["terminal_observation"].tolist() == [1, 2]
    envs.close()


class ReusingEnv(CounterEnv):
    """Hands out one array, and writes into it ever after."""

    def __init__(self) -> None:
        super().__init__(1)
        self.array = np.zeros(2)

    def _observation(self) -> np.ndarray:
        self.array[:] = super()._observation()
        return self.array


def test_a_terminal_observation_outlives_the_reset(vec_env: Any) -> None:
    envs = vec_env([ReusingEnv])
    envs.reset()
    for episode in (1, 2):
        observations, *_, infos = envs.step(np.array([0]))
        assert infos[0]["terminal_observation"].tolist() == [episode, 1] and observations.tolist() == [[episode + 1, 0]]
    envs.close()


def test_stepping_before_the_first_reset_is_the_environments_affair(vec_env: Any) -> None:
    envs = vec_env([CounterEnv] * 2)
    assert envs.step(np.array([1, 2]))[1].tolist() == [1.0, 2.0]
    envs.close()


def test_a_wrong_number_of_actions_steps_nothing(vec_env: Any) -> None:
    envs = vec_env([CounterEnv] * 2)
    envs.reset()
    for actions in ([0], np.zeros(3 if vec_env is SubprocVecEnv else 1, np.int64)):
        with pytest.raises(ValueError, match="actions for 2 environments"):
            envs.step_async(actions)
    assert envs.step([0, 0])[0].tolist() == [[1, 1], [1, 1]]
    envs.close()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (lambda: CounterEnv(), TypeError, "takes a list of functions that make environments.*make_env] \\* 4"),
        (CounterEnv(), TypeError, "got an environment \\(a CounterEnv\\).*lambda: CounterEnv"),
        ([CounterEnv, CounterEnv()], TypeError, "env_fns\\[1\\] is an environment.*lambda: CounterEnv"),
        ([gymnasium.make("CartPole-v1")], TypeError, "lambda: gymnasium.make\\('CartPole-v1'\\)"),
        (["CartPole-v1"], TypeError, "env_fns\\[0\\] is 'CartPole-v1'"),
        ("CartPole-v1", TypeError, "make_vec_env\\(id, 4\\)"),
        ([], ValueError, "empty list"),
        (None, TypeError, "got None"),
    ],
)
def test_what_are_no_functions_is_named(vec_env: Any, given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"{vec_env.__name__}.*{text}"):
        vec_env(env_fns=given)


def test_what_makes_no_environment_is_named(vec_env: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="NoneType|gymnasium.Env"):
        vec_env([lambda: None])


def test_an_environments_exception_is_raised_with_its_place(vec_env: Any) -> None:
    envs = vec_env([CounterEnv, functools.partial(FaultyEnv, step=LookupError("bad luck"))])
    envs.reset()
    with pytest.raises(LookupError, match="bad luck") as raised:
        envs.step(np.array([0, 0]))
    if sys.version_info >= (3, 11):
        assert any("environment 1: step()" in note for note in raised.value.__notes__)
    envs.close()
    envs.close()


@pytest.mark.parametrize("name", ["VecNormalize", "VecFrameStack", "VecTransposeImage", "VecMonitor", "VecCheckNan"])
def test_the_peers_wrappers_go_around(vec_env: Any, name: str) -> None:
    space = "box" if name == "VecNormalize" else "image"
    arguments = {"n_stack": 3} if name == "VecFrameStack" else {}
    results = []
    for kind in (vec_env, peer.DummyVecEnv):
        envs = getattr(peer, name)(kind([functools.partial(TalkingEnv, space)] * 2), **arguments)
        envs.seed(3)
        seen = [envs.reset()]
        for i in range(25):
            observations, rewards, dones, infos = envs.step(np.array([i % 5, 0]))
            seen += [observations, rewards.astype(np.float32), dones]
            ends = [info.get("terminal_observation") for info in infos]
            seen += [[end for end in ends if end is not None]]
            seen += [
                [(round(float(info["episode"]["r"]), 4), info["episode"]["l"]) for info in infos if "episode" in info]
            ]
        assert isinstance(envs.unwrapped, kind) and envs.get_attr("value") == [7, 7]
        results.append(seen)
        envs.close()
    if name == "VecNormalize":
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(np.asarray(ours, float), np.asarray(theirs, float), rtol=1e-5)
    else:
        assert_same(*results)


def test_a_video_has_the_environments_own_speed(vec_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moviepy", types.ModuleType("moviepy"))  # it is asked for before the first film
    envs = make_vec_env("CartPole-v1", 1, vec_env_cls=vec_env)
    recorder = peer.VecVideoRecorder(envs, str(tmp_path), lambda step: True, video_length=5)
    assert recorder.frames_per_sec == 50
    recorder.reset()
    assert [frame.shape[-1] for frame in recorder.recorded_frames] == [3]
    recorder.recording = False
    recorder.close()


def test_make_vec_env_is_the_peers(vec_env: Any, tmp_path: Path) -> None:
    def made(function: Any, kind: Any, folder: str) -> Any:
        np.random.seed(4)
        envs = function(
            "CartPole-v1",
            2,
            None,
            3,
            str(tmp_path / folder),
            vec_env_cls=kind,
            env_kwargs={"sutton_barto_reward": True},
        )
        return envs, np.random.randint(10**6)

    (ours, drawn), (theirs, drawn_by_them) = (
        made(make_vec_env, vec_env, "ours"),
        made(env_util.make_vec_env, None, "theirs"),
    )
    assert type(ours) is vec_env and drawn == drawn_by_them
    assert_same(ours.reset(), theirs.reset())
    for _ in range(30):
        (*arrays, infos), (*expected, their_infos) = ours.step(np.ones(2, np.int64)), theirs.step(np.ones(2, np.int64))
        assert_same([arrays[0], arrays[1].astype(np.float32), arrays[2]], expected)
        for info, theirs_ in zip(infos, their_infos, strict=True):
            episode, their_episode = info.pop("episode", {}), theirs_.pop("episode", {})
            assert (episode.get("r"), episode.get("l")) == (their_episode.get("r"), their_episode.get("l"))
        assert_same(infos, their_infos)
    ours.close()
    theirs.close()
    for files in ("ours", "theirs"):
        assert sorted(path.name for path in (tmp_path / files).iterdir()) == ["3.monitor.csv", "4.monitor.csv"]


def test_make_vec_env_takes_the_class_in_this_process_by_default() -> None:
    by_position: list[Any] = ["CartPole-v1", 1, None, 0, None, None, None, None]
    for envs in (
        make_vec_env("CartPole-v1"),
        make_vec_env(*by_position),
        make_vec_env("CartPole-v1", vec_env_cls=None),
    ):
        assert type(envs) is DummyVecEnv
        envs.close()


def test_training_goes_on_around_them(vec_env: Any) -> None:
    envs = make_vec_env("CartPole-v1", 2, seed=0, vec_env_cls=vec_env)
    held_out = make_vec_env("CartPole-v1", 1, seed=1, vec_env_cls=vec_env)
    callback = EvalCallback(held_out, eval_freq=20, n_eval_episodes=1, verbose=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Training and eval env are not of the same type")
        model = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, seed=0).learn(128, callback)
    assert evaluate_policy(model, held_out, n_eval_episodes=1)[0] > 0
    for each in (envs, held_out):
        each.close()


def trained(kind: Any, **arguments: Any) -> list[torch.Tensor]:
    envs = env_util.make_vec_env("Pendulum-v1", 3, seed=11, vec_env_cls=kind, vec_env_kwargs=arguments)
    model = A2C("MlpPolicy", peer.VecNormalize(envs), n_steps=20, seed=2, device="cpu").learn(660)
    envs.close()
    return [value.detach().clone() for value in model.policy.state_dict().values()]


@pytest.mark.own_process
def test_training_is_that_of_the_peer_bit_for_bit() -> None:
    """Episodes are cut short after 200 steps, so that terminal observations count."""
    torch.set_num_threads(1)
    theirs = trained(peer.SubprocVecEnv, start_method="fork")
    for mine in (trained(SubprocVecEnv), trained(SubprocVecEnv, num_workers=2)):
        assert all(torch.equal(own, other) for own, other in zip(mine, theirs, strict=True))
    theirs, mine = trained(peer.DummyVecEnv), trained(DummyVecEnv)
    assert all(torch.equal(own, other) for own, other in zip(mine, theirs, strict=True))


# DummyVecEnv alone


def test_one_environment_twice_is_refused_in_the_peers_words() -> None:
    env = CounterEnv()
    with pytest.raises(ValueError, match="returned the same instance"):
        DummyVecEnv([lambda: env] * 2)
    with pytest.raises(TypeError, match="start_method"):
        DummyVecEnv([CounterEnv], start_method="fork")


def test_all_environments_are_closed_whatever_one_of_them_raises() -> None:
    closed = []

    class Env(CounterEnv):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def close(self) -> None:
            closed.append(self.number)
            if self.number != 1:
                raise OSError("still busy")

    envs = DummyVecEnv([functools.partial(Env, number) for number in range(3)])
    with pytest.warns(UserWarning) as warned:
        envs.close()
    assert closed == [0, 1, 2] and len(warned) == 2
    assert all(str(warning.message).endswith("raised OSError: still busy") for warning in warned)
    if sys.version_info >= (3, 11):
        assert [str(warning.message)[:13] for warning in warned] == ["environment 0", "environment 2"]


def test_the_environments_are_there_to_be_changed() -> None:
    envs = DummyVecEnv([CounterEnv] * 2)
    assert envs.action_space is envs.envs[0].action_space
    envs.envs[1] = Monitor(envs.envs[1])
    envs.envs[0].step = lambda action: (np.zeros(2), 5.0, False, False, {})
    envs.reset()
    assert envs.step(np.array([0, 1]))[1].tolist() == [5.0, 1.0] and envs.env_is_wrapped(Monitor) == [False, True]
