"""Atari's games, preprocessed: bit for bit what the wrappers of Gymnasium, Stable-Baselines3 and CleanRL give. Needs the packages of
requirements-atari.txt."""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from shoal.atari import AtariEnv, AtariPreprocessing
from shoal.atari.preprocessing import preprocessing_of
from shoal.cli import main
from shoal.cli.settings import atari as atari_flags
from shoal.cli.settings import from_file as settings_of
from shoal.learn.environments import EnvOptions, sign_of_rewards

pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")

from gymnasium.wrappers import AtariPreprocessing as GymnasiumsPreprocessing  # noqa: E402
from gymnasium.wrappers import FrameStackObservation, TransformObservation  # noqa: E402
from stable_baselines3.common import atari_wrappers as sb3  # noqa: E402

# Of Enduro and YarsRevenge the colours change all the time.
GAMES = ("Pong", "Breakout", "Seaquest", "Enduro", "YarsRevenge")
# Lives are lost early, and often, without a strategy; the second has no FIRE, the fourth shows 0 lives for a while.
LIVES = ("Breakout", "MsPacman", "Seaquest", "Qbert")


def raw(game: str, **kwargs: Any) -> gymnasium.Env:
    return gymnasium.make(f"ALE/{game}-v5", **{"frameskip": 1, "repeat_action_probability": 0.0, **kwargs})


def ours(game: str, preprocessing: Any, **kwargs: Any) -> AtariEnv:
    return AtariEnv(f"ALE/{game}-v5", preprocessing, **{"repeat_action_probability": 0.0, **kwargs})


def actions_of(env: gymnasium.Env, steps: int, seed: int) -> Iterator[int]:
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    yield from np.random.default_rng(seed).integers(env.action_space.n, size=steps).tolist()


def assert_plays_the_same(mine: gymnasium.Env, theirs: gymnasium.Env, steps: int, infos: bool = False) -> int:
    """Returns how many episodes ended."""
    assert mine.observation_space == theirs.observation_space
    assert mine.action_space == theirs.action_space
    (seen, info), (expected, other) = mine.reset(seed=3), theirs.reset(seed=3)
    ended = 0
    for i, action in enumerate(actions_of(mine, steps, seed=7)):
        np.testing.assert_array_equal(seen, expected, err_msg=f"before step {i}")
        assert not infos or info == other
        seen, *results, info = mine.step(action)
        expected, *known, other = theirs.step(action)
        assert results == known, f"step {i}"
        if results[1] or results[2]:
            np.testing.assert_array_equal(seen, expected, err_msg=f"the end at step {i}")
            (seen, info), (expected, other) = mine.reset(), theirs.reset()
            ended += 1
    mine.close()
    theirs.close()
    return ended


class ZeroPadded(gymnasium.ObservationWrapper):
    """VecFrameStack of one environment, pictures first."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self._stack = np.zeros((4, 84, 84), np.uint8)

    def reset(self, **kwargs: Any) -> Any:
        self._stack[:] = 0
        return super().reset(**kwargs)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        self._stack = np.concatenate([self._stack[1:], observation[None, :, :, 0]])
        return self._stack


def sb3_env(game: str, **kwargs: Any) -> gymnasium.Env:
    return ZeroPadded(sb3.AtariWrapper(raw(game), clip_reward=False, **kwargs))


def cleanrl_env(game: str) -> gymnasium.Env:
    """As ppo_atari.py has them, with Gymnasium 0.29's ResizeObservation and GrayScaleObservation."""
    env: gymnasium.Env = sb3.EpisodicLifeEnv(sb3.MaxAndSkipEnv(sb3.NoopResetEnv(raw(game), noop_max=30), skip=4))
    if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        env = sb3.FireResetEnv(env)

    def small_and_grey(frame: np.ndarray) -> np.ndarray:
        return cv2.cvtColor(cv2.resize(frame, (84, 84), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)

    return FrameStackObservation(
        TransformObservation(env, small_and_grey, gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)), 4
    )


# --- bit for bit


@pytest.mark.parametrize("game", GAMES)
def test_a_game_is_what_gymnasiums_wrappers_make_of_it(game: str) -> None:
    theirs = FrameStackObservation(GymnasiumsPreprocessing(raw(game)), 4)
    assert_plays_the_same(ours(game, "gymnasium"), theirs, steps=400, infos=True)


def test_the_last_observation_of_a_game_is_theirs_too() -> None:
    theirs = FrameStackObservation(GymnasiumsPreprocessing(raw("Breakout"), frame_skip=3), 4)
    mine = ours("Breakout", AtariPreprocessing.like("gymnasium", frame_skip=3))
    assert assert_plays_the_same(mine, theirs, steps=1500) > 2


@pytest.mark.parametrize(
    ("switches", "arguments", "of_game"),
    [
        ({"noop_max": 0, "screen_size": (96, 64)}, {"noop_max": 0, "screen_size": (96, 64)}, {}),
        ({"frame_skip": 1}, {"frame_skip": 1}, {"full_action_space": True}),
        ({"frame_skip": 2, "grayscale_obs": False}, {"frame_skip": 2, "grayscale_obs": False}, {"mode": 4}),
        ({"screen_size": (80, 105)}, {"screen_size": (80, 105)}, {"repeat_action_probability": 0.25}),
        ({"screen_size": None}, {"screen_size": (160, 210)}, {"difficulty": 1}),
    ],
)
def test_each_switch_is_gymnasiums(
    switches: dict[str, Any], arguments: dict[str, Any], of_game: dict[str, Any]
) -> None:
    theirs = FrameStackObservation(GymnasiumsPreprocessing(raw("Breakout", **of_game), **arguments), 4)
    assert_plays_the_same(ours("Breakout", AtariPreprocessing.like("gymnasium", **switches), **of_game), theirs, 150)


@pytest.mark.parametrize("frame_skip", [1, 2, 4])
@pytest.mark.parametrize("game", ["Breakout", "Frogger"])
def test_a_step_that_loses_a_life_is_gymnasiums(game: str, frame_skip: int) -> None:
    """It stops with that frame. Frogger shows 0 lives for a while, whose loss counts, too. Only resets differ: none is made."""
    switches: dict[str, Any] = {"terminal_on_life_loss": True, "frame_skip": frame_skip}
    mine = ours(game, AtariPreprocessing.like("gymnasium", **switches))
    theirs = FrameStackObservation(GymnasiumsPreprocessing(raw(game), **switches), 4)
    np.testing.assert_array_equal(mine.reset(seed=3)[0], theirs.reset(seed=3)[0])
    left = []
    for step, action in enumerate(actions_of(mine, 10_000 // frame_skip, seed=7)):
        seen, *results, info = mine.step(action)
        expected, *known, other = theirs.step(action)
        assert (results, info) == (known, other), f"step {step}"
        np.testing.assert_array_equal(seen, expected, err_msg=f"step {step}")
        if results[1]:
            left.append(info["lives"])
            if mine.ale.game_over():
                break
    begun = {"Breakout": 5, "Frogger": 4}[game]
    assert left == [*range(begun - 1, -1, -1), *([0] if game == "Frogger" else [])]


def test_the_seed_of_the_last_reset_is_known_and_asking_changes_nothing() -> None:
    asked, silent = ours("Breakout", "gymnasium"), ours("Breakout", "gymnasium")
    for env in (asked, silent):
        env.reset(seed=3)
    assert asked.np_random_seed == 3
    np.testing.assert_array_equal(asked.reset()[0], silent.reset()[0])
    assert asked.np_random.bit_generator.state == silent.np_random.bit_generator.state
    asked.np_random = np.random.default_rng(5)
    assert asked.np_random_seed == asked.game.np_random_seed == -1


def test_without_a_stack_there_is_no_axis_for_it_and_without_pooling_the_last_frame_counts() -> None:
    mine, theirs = ours("Pong", {"like": "gymnasium", "frame_stack": None}), GymnasiumsPreprocessing(raw("Pong"))
    assert_plays_the_same(mine, theirs, steps=100)
    mine = ours(
        "Pong", {"like": "gymnasium", "frame_stack": None, "max_pool": False, "screen_size": None, "noop_max": 0}
    )
    screens = raw("Pong", frameskip=4, obs_type="grayscale")
    assert_plays_the_same(mine, screens, steps=100)


@pytest.mark.parametrize("game", LIVES)
def test_lives_fire_and_pixels_are_stable_baselines3s(game: str) -> None:
    assert assert_plays_the_same(ours(game, "sb3"), sb3_env(game), steps=700) > 2


def test_stable_baselines3s_without_lives_as_episodes() -> None:
    theirs = sb3_env("Breakout", terminal_on_life_loss=False, noop_max=5)
    mine = ours("Breakout", AtariPreprocessing.like("sb3", terminal_on_life_loss=False, noop_max=5))
    assert assert_plays_the_same(mine, theirs, steps=700) > 0


@pytest.mark.parametrize("game", LIVES)
def test_lives_fire_and_pixels_are_cleanrls(game: str) -> None:
    assert assert_plays_the_same(ours(game, "cleanrl"), cleanrl_env(game), steps=500) > 1


def test_older_ids_and_those_with_a_frame_skip_of_their_own_are_taken() -> None:
    for env_id in ("BreakoutNoFrameskip-v4", "Breakout-v4"):
        mine = AtariEnv(env_id, "gymnasium")
        assert_plays_the_same(mine, FrameStackObservation(GymnasiumsPreprocessing(raw("Breakout")), 4), steps=60)


def test_every_switch_changes_what_is_seen_or_when_an_episode_ends() -> None:
    every = AtariPreprocessing(
        noop_max=0,
        frame_skip=3,
        max_pool=False,
        terminal_on_life_loss=False,
        stop_at_life_loss=True,
        fire_reset=False,
        screen_size=42,
        grayscale_obs=False,
        frame_stack=2,
        clip_reward=False,
        pixels="sb3",
        padding_type="zero",
        whole_games=True,
    )

    def played(how: AtariPreprocessing) -> list[Any]:
        env = ours("Seaquest", how)
        found: list[Any] = [env.reset(seed=3)[0].tobytes()]
        for action in actions_of(env, 250, seed=7):
            seen, *results, _ = env.step(action)
            found += [seen.tobytes(), results]
            if results[1]:
                return found
        return found

    usual = played(AtariPreprocessing())
    for name, value in every.as_dict().items():
        changes = played(dataclasses.replace(AtariPreprocessing(), **{name: value})) != usual
        assert changes == (name != "clip_reward"), name  # which is the vector environment's to do


# --- whole games


def test_a_whole_game_is_that_of_the_wrappers_with_its_lives_in_one_episode() -> None:
    mine, theirs = ours("Breakout", AtariPreprocessing.like("sb3", whole_games=True)), sb3_env("Breakout")
    seen, expected = mine.reset(seed=3)[0], theirs.reset(seed=3)[0]
    lives = 1
    for action in actions_of(mine, 2000, seed=7):
        np.testing.assert_array_equal(seen, expected)
        seen, _, over, _, _ = mine.step(action)
        expected, _, lost, _, _ = theirs.step(action)
        if lost:
            if over:
                break
            lives += 1
            expected, _ = theirs.reset()
        assert not over
    assert lives == 5 and over


def test_rewards_of_a_new_life_count_for_a_whole_game() -> None:
    """Its no-op and FIRE are frames of the game like others."""
    mine = ours("MsPacman", AtariPreprocessing(whole_games=True, noop_max=0))
    played: list[float] = []
    act = mine.ale.act

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(mine.game.ale, name)

        def act(self, action: Any) -> float:
            played.append(act(action))
            return played[-1]

    mine.ale = Counting()
    mine.reset(seed=3)
    played.clear()
    total, lives = 0.0, set()
    for action in actions_of(mine, 600, seed=7):
        _, reward, over, _, info = mine.step(action)
        total += reward
        lives.add(info["lives"])
        if over:
            break
    assert len(lives) > 2, "too few lives were lost"
    assert total == sum(played) > 0


def test_a_reset_in_the_middle_or_with_a_seed_begins_a_new_game() -> None:
    mine = ours("Breakout", None)
    first, _ = mine.reset(seed=3)
    for action in actions_of(mine, 700, seed=7):
        *_, lost, _, info = mine.step(action)
        if lost:
            break
    assert info["lives"] == 4
    np.testing.assert_array_equal(mine.reset(seed=3)[0], first)
    mine.step(action=0)
    assert mine.reset()[1]["lives"] == 5
    for action in actions_of(mine, 700, seed=7):
        if mine.step(action)[2]:
            break
    assert mine.reset(options={"new": True})[1]["lives"] == 5


def test_a_limit_of_steps_truncates_the_game_and_not_the_life() -> None:
    mine = AtariEnv("ALE/Breakout-v5", None, max_episode_steps=40)
    mine.reset(seed=3)
    ends = []
    for step, action in enumerate(actions_of(mine, 120, seed=7), 1):
        *_, terminated, truncated, _ = mine.step(action)
        if terminated or truncated:
            ends.append((step, truncated))
            lives = mine.reset()[1]["lives"]
            assert not truncated or lives == 5
    assert [step for step, truncated in ends if truncated] == [40, 80, 120]


# --- in vector environments


def vector(**arguments: Any) -> Any:
    kwargs = {"repeat_action_probability": 0.0, **arguments.pop("env_kwargs", {})}
    return shoal.make_vec("ALE/Breakout-v5", env_kwargs=kwargs, **arguments)


def test_workers_play_as_gymnasiums_wrappers_do_in_this_process() -> None:
    def make() -> gymnasium.Env:
        return FrameStackObservation(GymnasiumsPreprocessing(raw("Breakout")), 4)

    theirs = gymnasium.vector.SyncVectorEnv([make] * 3)
    with closing(theirs), closing(vector(num_envs=3, num_workers=2, atari="gymnasium")) as envs:
        assert envs.observation_space == theirs.observation_space
        expected, _ = theirs.reset(seed=5)
        np.testing.assert_array_equal(envs.reset(seed=5)[0], expected)
        theirs.action_space.seed(5)
        for _ in range(60):
            action = theirs.action_space.sample()
            for mine, other in zip(envs.step(action)[:4], theirs.step(action)[:4], strict=True):
                np.testing.assert_array_equal(mine, other)


def test_rewards_are_signs_and_statistics_the_games_own() -> None:
    """In Seaquest a hit gives 20 points."""
    kwargs = {"num_envs": 1, "env_kwargs": {"repeat_action_probability": 0.0}, "episode_statistics": True, "seed": 3}
    totals: dict[bool, list[float]] = {}
    for clip in (True, False):
        rewards, totals[clip] = [], []
        with closing(shoal.make_vec("ALE/Seaquest-v5", atari={"clip_reward": clip}, **kwargs)) as envs:
            envs.reset()
            for action in actions_of(ours("Seaquest", None), 400, seed=7):
                _, reward, _, _, infos = envs.step(np.array([action]))
                rewards.append(reward[0])
                totals[clip] += [infos["episode"]["r"][0]] if "episode" in infos else []
        assert set(rewards) == ({0.0, 1.0} if clip else {0.0, 20.0})
    assert totals[True] == totals[False] and max(totals[True]) >= 20


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({"atari": True}, (4, 84, 84)),
        ({"atari": {"frame_stack": 2}}, (2, 84, 84)),
        ({"atari": True, "frame_stack": 3}, (3, 84, 84)),
        ({"atari": AtariPreprocessing(screen_size=42, frame_stack=None)}, (42, 42)),
        ({"atari": False}, (210, 160, 3)),
        ({"atari": None}, (210, 160, 3)),
    ],
)
def test_the_argument_says_how_games_are_preprocessed(arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    with closing(vector(num_envs=1, **arguments)) as envs:
        assert envs.single_observation_space.shape == shape
        assert envs.reset(seed=0)[0].shape == (1, *shape)


def test_a_time_limit_counts_steps_of_a_game_and_bounds_of_rewards_take_the_place_of_signs() -> None:
    with closing(vector(num_envs=1, atari=True, max_episode_steps=5, reward_clip=(0, 0.25))) as envs:
        envs.reset(seed=3)
        ends = [envs.step(np.array([1]))[3][0] for _ in range(11)]
        assert ends == [False] * 4 + [True] + [False] * 5 + [True]


@pytest.mark.parametrize(
    ("env", "arguments", "error", "message"),
    [
        ("CartPole-v1", {"atari": True}, TypeError, "games of ale_py, given by their id.*'CartPole-v1'"),
        ("shoal/CartPole-v1", {"atari": True}, TypeError, "games of ale_py.*'shoal/CartPole-v1'"),
        (lambda: raw("Pong"), {"atari": True}, TypeError, "games of ale_py"),
        ("ALE/Pong-v5", {"atari": {"nop_max": 3}}, ValueError, "no switch 'nop_max'; did you mean 'noop_max'"),
        ("ALE/Pong-v5", {"atari": "rllib"}, ValueError, "'gymnasium', 'sb3' or 'cleanrl', got 'rllib'"),
        ("ALE/Pong-v5", {"atari": 3}, TypeError, "atari takes True or False, the name of a library"),
        ("ALE/Pong-v5", {"atari": {"screen_size": (1, 2, 3)}}, ValueError, "a number, or columns and rows"),
        ("ALE/Pong-v5", {"atari": {"frame_skip": 0}}, ValueError, "frame_skip=…. takes at least 1"),
        ("ALE/Pong-v5", {"atari": {"noop_max": 2.5}}, TypeError, "noop_max=…. takes an int"),
        ("ALE/Pong-v5", {"atari": {"fire_reset": 1}}, TypeError, "fire_reset=…. takes True or False"),
        ("ALE/Pong-v5", {"atari": {"padding_type": "one"}}, ValueError, "'reset' or 'zero', got 'one'"),
    ],
)
def test_what_cannot_be_preprocessed_is_one_clear_error(
    env: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        shoal.make_vec(env, 2, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"obs_type": "ram"}, "obs_type='ram' is of raw frames"),
        ({"frameskip": 4}, "say how many by AtariPreprocessing.frame_skip"),
        ({"preprocessing": False}, "gymnasium.make.. gives the game as it is"),
        ({"preprocessing": {"screen_size": 300}}, "from 1 to 160 columns"),
    ],
)
def test_arguments_of_raw_frames_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariEnv("ALE/Pong-v5", **arguments)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", "CartPole-v1 is no Atari game"),
        (gymnasium.spec("CartPole-v1"), "CartPole-v1 is no Atari game"),
        (5, "takes the id of a game, such as 'ALE/Pong-v5', or its EnvSpec, got 5"),
    ],
)
def test_what_is_no_game_is_told_as_that(env: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        AtariEnv(env)
    with pytest.raises(TypeError, match="unexpected keyword argument 'frame_stack'"):
        AtariEnv("ALE/Pong-v5", frame_stack=3)


def test_a_wrapper_and_a_program_see_the_games_own_parts() -> None:
    env = AtariEnv(gymnasium.spec("ALE/Breakout-v5"), {"noop_max": 0}, render_mode="rgb_array")
    env.reset(seed=1)
    assert env.render().shape == (210, 160, 3)
    assert env.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert env.np_random is env.game.np_random
    assert env.ale.lives() == 5


def test_like_takes_switches_and_says_all_of_them() -> None:
    how = AtariPreprocessing.like("sb3", noop_max=7)
    assert (how.noop_max, how.pixels, how.padding_type) == (7, "sb3", "zero")
    assert AtariPreprocessing(**json.loads(json.dumps(how.as_dict()))) == how
    evaluated = how.for_evaluation()
    assert (evaluated.whole_games, evaluated.clip_reward, evaluated.noop_max) == (True, False, 7)
    with pytest.raises(ValueError, match="no switch 'noops'"):
        AtariPreprocessing.like("sb3", noops=7)


# --- in training

TINY = {
    "total_steps": 32,
    "num_envs": 2,
    "num_steps": 8,
    "batch_size": 16,
    "epochs": 1,
    "num_workers": 0,
    "eval_every": 0,
    "eval_envs": 1,
    "eval_episodes": 1,
    "final_episodes": 0,
    "max_episode_steps": 20,  # whole games are long
}


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Trains, and returns the run's config.json."""

    def run(env: str = "ALE/Breakout-v5", name: str = "run", **arguments: Any) -> dict[str, Any]:
        result = shoal.learn.train(env, run_dir=tmp_path / name, **{**TINY, **arguments})
        return json.loads((result.run_dir / "config.json").read_text())

    return run


def test_training_preprocesses_by_default_and_evaluates_whole_games(train: Any, tmp_path: Path) -> None:
    run = train()
    assert run["preset"] == "atari" and run["atari"] == AtariPreprocessing().as_dict() | {"screen_size": [84, 84]}
    assert run["config"]["sign_reward"] is True
    policy = shoal.learn.load_policy(tmp_path / "run")
    assert policy.observation_space.shape == (4, 84, 84)
    found = shoal.learn.evaluate(tmp_path / "run", 2, max_episode_steps=150, num_workers=0)
    assert found.lengths == [150, 150], "a life is shorter"
    lives = shoal.learn.evaluate(tmp_path / "run", 1, atari={**run["atari"], "fire_reset": False}, max_episode_steps=20)
    assert lives.lengths == [20]


def test_a_preset_brings_its_librarys_preprocessing(train: Any) -> None:
    library = AtariPreprocessing.like
    for name, expected in (("cleanrl_atari", library("cleanrl")), ("zoo_atari", library("sb3"))):
        assert train(name=name, preset=name)["atari"] == expected.as_dict() | {"screen_size": [84, 84]}


def test_switches_change_that_and_a_library_takes_its_place() -> None:
    for asked, expected in (
        ({"noop_max": 0}, AtariPreprocessing.like("cleanrl", noop_max=0)),
        ({"like": "sb3", "noop_max": 0}, AtariPreprocessing.like("sb3", noop_max=0)),
        (True, AtariPreprocessing()),
        (False, None),
    ):
        options = EnvOptions(atari=asked).with_preprocessing("ALE/Breakout-v5", "cleanrl_atari")
        assert preprocessing_of(options.atari) == expected


def test_switches_change_what_a_run_has_recorded() -> None:
    recorded = {"atari": AtariPreprocessing.like("sb3").as_dict()}
    for asked, expected in (
        ({"noop_max": 0}, AtariPreprocessing.like("sb3", noop_max=0)),
        ({"like": "cleanrl"}, AtariPreprocessing.like("cleanrl")),
        (None, AtariPreprocessing.like("sb3")),
    ):
        options = EnvOptions(atari=asked).over_run(recorded, "train(…")
        assert preprocessing_of(options.atari) == expected


def test_what_remembers_sees_one_picture_at_a_time() -> None:
    options = EnvOptions().with_preprocessing("ALE/Breakout-v5", "cleanrl_atari_lstm")
    assert AtariPreprocessing.like("cleanrl", frame_stack=1) == preprocessing_of(options.atari)


def test_a_switch_of_training_is_kept_and_resumed(train: Any, tmp_path: Path) -> None:
    run = train(atari={"noop_max": 3, "clip_reward": False}, pause_at_step=16)
    assert (run["atari"]["noop_max"], run["config"]["sign_reward"]) == (3, False)
    resumed = shoal.learn.train(run_dir=tmp_path / "run", resume=True, num_workers=0, pause_at_step=None)
    assert resumed.steps == 32
    assert json.loads((tmp_path / "run" / "config.json").read_text())["atari"]["noop_max"] == 3
    with shoal.learn.Trainer(
        run_dir=tmp_path / "run", resume=True, num_workers=0, total_steps=48, atari=True
    ) as changed:
        assert changed.config["sign_reward"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        {"atari": False},
        {"env_kwargs": {"obs_type": "ram"}},
        {"env_kwargs": {"frameskip": 1}, "wrappers": ["gymnasium.wrappers:AtariPreprocessing"], "frame_stack": 2},
        {"env": "BreakoutNoFrameskip-v4", "wrappers": [GymnasiumsPreprocessing]},
    ],
)
def test_who_describes_raw_frames_gets_them(tmp_path: Path, arguments: dict[str, Any]) -> None:
    env = arguments.pop("env", "ALE/Breakout-v5")
    with shoal.learn.Trainer(env, run_dir=tmp_path / "run", **TINY, **arguments) as trainer:
        assert not json.loads((trainer.run_dir / "config.json").read_text())["atari"]


def test_another_way_of_scaling_rewards_goes_before_the_default_sign(train: Any) -> None:
    assert train(normalize_reward=True, name="a")["config"]["sign_reward"] is False
    assert train(sign_reward=False, name="b")["config"]["sign_reward"] is False
    with pytest.raises(ValueError, match="atari= says clip_reward=True.*normalize_reward=True scales them: choose one"):
        train(normalize_reward=True, atari={"clip_reward": True}, name="c")


@pytest.mark.parametrize("scaling", [{"reward_clip": (-5, 5)}, {"normalize_reward": True}])
def test_another_way_of_scaling_goes_before_all_preprocessing_that_does_not_name_the_sign(
    scaling: dict[str, Any],
) -> None:
    options, overrides = EnvOptions().beside(scaling)
    for asked, sign in (
        ({"noop_max": 0}, False),
        (True, False),
        ("sb3", False),
        ({"clip_reward": True}, True),
        (AtariPreprocessing(), True),
    ):
        given = dataclasses.replace(options, atari=asked).with_preprocessing("ALE/Breakout-v5", "atari")
        if sign and "normalize_reward" in scaling:  # of both, one has to be chosen
            with pytest.raises(ValueError, match="atari= says clip_reward=True"):
                sign_of_rewards(given, asked, {}, overrides)
            continue
        assert sign_of_rewards(given, asked, {}, overrides)["sign_reward"] is sign, asked


def test_a_reward_clip_goes_before_the_sign_of_a_run_that_goes_on(train: Any, tmp_path: Path) -> None:
    assert train(pause_at_step=16)["config"]["sign_reward"] is True
    again = {"run_dir": tmp_path / "run", "resume": True, "num_workers": 0, "reward_clip": (-5, 5)}
    for more, sign in (({}, False), ({"atari": {"clip_reward": True}}, True), ({"sign_reward": True}, True)):
        with shoal.learn.Trainer(**again, **more) as changed:
            assert changed.config["sign_reward"] is sign
        del changed
        gc.collect()  # which gives the folder to the next


def test_a_collector_takes_it() -> None:
    collector = shoal.Collector(
        "ALE/Pong-v5",
        lambda observations: np.zeros(len(observations), np.int64),
        num_envs=1,
        frames_per_batch=4,
        total_frames=4,
        seed=1,
        atari=True,
        output="numpy",
    )
    with closing(collector):
        (batch,) = list(collector)
    assert batch["obs"].shape[-3:] == (4, 84, 84)


# --- on the command line


def test_flags_say_how_a_game_is_preprocessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [
        f"--set={name}={value}" for name, value in TINY.items() if name not in ("num_workers", "max_episode_steps")
    ]
    short = ["train", "ALE/Breakout-v5", *settings, "--max-episode-steps=20", "--num-workers=0", "--quiet"]
    flags = ["--atari=sb3", "--atari=noop_max=2", "--atari=pixels=gymnasium"]
    assert main([*short, *flags, f"--run-dir={tmp_path / 'run'}"]) == 0, capsys.readouterr().err
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["atari"]
    expected = AtariPreprocessing.like("sb3", noop_max=2, pixels="gymnasium")
    assert recorded == expected.as_dict() | {"screen_size": [84, 84]}
    gif = tmp_path / "game.gif"
    assert main(["eval", str(tmp_path / "run"), "--episodes=1", "--num-workers=0", f"--gif={gif}"]) == 0
    assert "1 episodes" in capsys.readouterr().out and gif.stat().st_size > 0
    assert main([*short, "--atari=off", "--atari=sb3"]) == 2
    assert "--atari off goes with no other" in capsys.readouterr().err
    assert main([*short, "--atari=noops=2"]) == 2
    assert "no switch 'noops'" in capsys.readouterr().err
    (tmp_path / "game.toml").write_text("[atari]\nlike = 'cleanrl'\n")
    assert settings_of(tmp_path / "game.toml") == {"atari": {"like": "cleanrl"}}
    assert atari_flags(["off"]) is False
