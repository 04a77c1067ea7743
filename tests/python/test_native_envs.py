"""Native environments against the installed Gymnasium: the same seeds and actions, the same bits.

Observations are compared byte for byte, rewards and flags with `==`. SHOAL_TEST_EPISODES multiplies the number
of episodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import shoal.envs
from shoal import _core

SCALE = float(os.environ.get("SHOAL_TEST_EPISODES", "1"))
# How many episodes each is compared over; a step of Gymnasium's Acrobot costs five times that of the others.
EPISODES = {
    "CartPole-v1": 2000,
    "Pendulum-v1": 1000,
    "Acrobot-v1": 400,
    "MountainCar-v0": 1000,
    "MountainCarContinuous-v0": 1000,
}
IDS = list(EPISODES)


def python_env(name: str, **kwargs) -> gymnasium.Env:
    return gymnasium.make(name, disable_env_checker=True, **kwargs)


def native(name: str, count: int = 1, **kwargs) -> _core.env.BatchEnv:
    return _core.env.BatchEnv(f"shoal/{name}", count, json.dumps(kwargs))


class Player:
    """Chooses actions: at random, or so that the mountain is climbed and the pole is held for a while."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)

    def __call__(self, episode: int, obs: np.ndarray):
        skilled = episode % 2 == 1
        if self.name == "CartPole-v1":
            return int(obs[2] + 0.5 * obs[3] > 0) if skilled and self.random.random() < 0.9 else self._choice(2)
        if self.name == "Acrobot-v1":
            return int(1 + np.sign(obs[5])) if skilled else self._choice(3)
        if self.name == "MountainCar-v0":
            return int(1 + np.sign(obs[1] + 1e-9)) if skilled else self._choice(3)
        scale = 3.0 if self.name == "Pendulum-v1" else 1.6  # beyond the bounds now and then: both sides clip
        force = self.random.uniform(-scale, scale, 1).astype(np.float32)
        if skilled and self.name == "MountainCarContinuous-v0":
            force = np.copysign(force, obs[1:2]).astype(np.float32)
        return force

    def _choice(self, n: int) -> int:
        return int(self.random.integers(n))


@pytest.mark.parametrize("name", IDS)
def test_episodes_equal_gymnasiums_step_for_step(name):
    env, batch = python_env(name), native(name)
    obs, actions, reward = batch.obs[0], batch.actions[0], batch.reward
    player = Player(name, seed=1)
    ends = {"terminated": 0, "truncated": 0}
    for episode in range(int(EPISODES[name] * SCALE)):
        # Every third reset goes on with the stream of the last seed, as an automatic reset does.
        seed = None if episode % 3 == 2 else episode * 7919
        expected, _ = env.reset(seed=seed)
        batch.reset(0, seed)
        assert obs[0].tobytes() == expected.tobytes(), f"reset of episode {episode}"
        over = False
        while not over:
            action = player(episode, expected)
            actions[0] = action
            batch.step()
            expected, expected_reward, terminated, truncated, _ = env.step(action)
            assert obs[0].tobytes() == expected.tobytes(), f"episode {episode}: {obs[0]} != {expected}"
            assert reward[0] == expected_reward, f"episode {episode}"
            assert (bool(batch.terminated[0]), bool(batch.truncated[0])) == (terminated, truncated)
            over = terminated or truncated
        ends["terminated"] += terminated
        ends["truncated"] += truncated
    if name != "Pendulum-v1":
        assert ends["terminated"] > 0, "no episode ended by itself: the comparison has not seen a termination"
    assert ends["truncated"] > 0 or SCALE < 1, "no episode reached the time limit"


@pytest.mark.parametrize("name", IDS)
def test_a_step_from_any_state_equals_gymnasiums(name):
    env, batch = python_env(name).unwrapped, native(name, max_episode_steps=-1)
    env.reset(seed=0)
    width = {"CartPole-v1": (2.6, 3.0, 0.25, 3.0), "Pendulum-v1": (20.0, 8.0), "Acrobot-v1": (3.2, 3.2, 12.6, 28.3)}
    size = np.array(width.get(name, (0.9, 0.075)))
    centre = np.array([-0.3, 0.0]) if "Mountain" in name else np.zeros(len(size))
    random = np.random.default_rng(2)
    player = Player(name, seed=3)
    for trial in range(5000):
        # MountainCarContinuous keeps float32 after a step and float64 after a reset: both are tried.
        dtype = np.float32 if name == "MountainCarContinuous-v0" and trial % 2 else np.float64
        state = (centre + random.uniform(-size, size)).astype(dtype)
        env.state = state.copy()
        env.steps_beyond_terminated = None
        batch.set_state(state.astype(np.float64).tolist())
        action = player(0, np.zeros(6, np.float32))
        batch.actions[0][0] = action
        batch.step()
        expected, reward, terminated, _, _ = env.step(action)
        assert batch.obs[0][0].tobytes() == expected.tobytes(), (state, action)
        assert (batch.reward[0], bool(batch.terminated[0])) == (reward, terminated), (state, action)
        assert batch.state() == [float(v) for v in env.state], (state, action)


@pytest.mark.parametrize("count", [1, 40])  # 40: some of them in vector registers
def test_hidden_velocities_are_zeros_and_nothing_else_differs(count):
    plain, hidden = native("CartPole-v1", count), native("CartPoleNoVel-v1", count)
    asked = native("CartPole-v1", count, hide_velocities=True)
    random = np.random.default_rng(7)
    for i in range(count):
        for batch in (plain, hidden, asked):
            batch.reset(i, i)
    for _ in range(30):
        expected = plain.obs[0] * np.array([1, 0, 1, 0], np.float32)
        for batch in (hidden, asked):
            np.testing.assert_array_equal(batch.obs[0], expected)
            np.testing.assert_array_equal(batch.reward, plain.reward)
            np.testing.assert_array_equal(batch.terminated, plain.terminated)
        actions = random.integers(0, 2, count)
        for batch in (plain, hidden, asked):
            batch.actions[0][:] = actions
            batch.step()
    assert plain.obs[0][:, [1, 3]].all()


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("Pendulum-v1", {"g": 9.81}),
        ("MountainCar-v0", {"goal_velocity": 0.03}),
        ("MountainCarContinuous-v0", {"goal_velocity": 0.05}),
    ],
)
def test_arguments_mean_what_they_mean_to_gymnasium(name, kwargs):
    env, batch = python_env(name, **kwargs), native(name, **kwargs)
    player = Player(name, seed=4)
    for episode in range(60):
        expected, _ = env.reset(seed=episode)
        batch.reset(0, episode)
        over = False
        while not over:
            action = player(episode, expected)
            batch.actions[0][0] = action
            batch.step()
            expected, reward, terminated, truncated, _ = env.step(action)
            assert batch.obs[0][0].tobytes() == expected.tobytes()
            assert (batch.reward[0], bool(batch.terminated[0])) == (reward, terminated)
            over = terminated or truncated


@pytest.mark.parametrize("name", IDS)
def test_spec_and_spaces_equal_gymnasiums(name):
    env, batch, spec = python_env(name), native(name), _core.env.find(f"shoal/{name}")
    assert batch.observation_space == env.observation_space
    assert batch.action_space == env.action_space
    assert np.array_equal(batch.observation_space.high, env.observation_space.high)
    assert spec.max_episode_steps == env.spec.max_episode_steps
    assert spec.reward_threshold == env.spec.reward_threshold


@pytest.mark.parametrize("name", IDS)
def test_environments_of_a_batch_do_not_depend_on_each_other(name):
    batch, alone = native(name, 7), [native(name) for _ in range(7)]
    random = np.random.default_rng(5)
    for i, single in enumerate(alone):
        batch.reset(i, 100 + i)
        single.reset(0, 100 + i)
    for _ in range(300):
        for i, single in enumerate(alone):
            sample = random.integers(2) if batch.actions[0].ndim == 1 else random.uniform(-1, 1)
            batch.actions[0][i] = single.actions[0][0] = sample
        batch.step(0, 3)
        batch.step(3, 7)
        for i, single in enumerate(alone):
            single.step()
            assert batch.obs[0][i].tobytes() == single.obs[0][0].tobytes()
            assert batch.reward[i] == single.reward[0]
            assert (batch.terminated[i], batch.truncated[i]) == (single.terminated[0], single.truncated[0])
            if single.terminated[0] or single.truncated[0]:
                batch.reset(i)
                single.reset(0)


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**40 + 7, 2**63 + 1, 2**64 - 1])
def test_random_stream_is_numpys(seed):
    ours, theirs = _core.env.NpRandom(seed), np.random.Generator(np.random.PCG64(seed))
    ranges = [(0, 2), (0, 10), (-5, 1000), (0, 2**31 + 5), (0, 2**32), (0, 2**33 + 1), (-(2**63), 2**63 - 1), (3, 4)]
    for _ in range(200):
        assert ours.random_raw() == int(theirs.bit_generator.random_raw())
        assert ours.random() == theirs.random()
        assert ours.uniform(-0.3, 0.7) == theirs.uniform(-0.3, 0.7)
        for low, high in ranges:
            assert ours.integers(low, high) == theirs.integers(low, high)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Discrete(3, start=-1),
        spaces.Discrete(3, dtype=np.int32),
        spaces.MultiDiscrete([5, 22, 3]),
        spaces.MultiDiscrete([5, 2], start=[1, 0]),
        spaces.MultiBinary(4),
        spaces.MultiBinary((2, 3)),
        spaces.Box(-1, 1, (3,)),
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Box(np.array([-10, 2]), np.array([3, 30]), dtype=np.int32),
        spaces.Box(np.array([-1.5, -np.inf], np.float32), np.array([1e-5, 2.25], np.float32)),
        spaces.Box(np.array([-0.1, -100.0]), np.array([1 / 3, 3e9]), dtype=np.float64),
        spaces.Box(np.full(1500, -1.0, np.float32), np.arange(1500, dtype=np.float32)),
        spaces.Dict({"b": spaces.Discrete(2), "it's": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, ())])}),
        *(python_env(name).observation_space for name in IDS),
        *(python_env(name).action_space for name in IDS),
    ],
    ids=lambda space: type(space).__name__,
)
def test_space_is_written_as_gymnasium_writes_it(space):
    assert _core.env.space_repr(space) == repr(space)


def test_unknown_id_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean shoal/CartPole-v1"):
        _core.env.find("shoal/CartPol-v1")
    assert not _core.env.is_registered("CartPole-v1")
    assert {f"shoal/{name}" for name in IDS} <= {spec.id for spec in _core.env.registered()}


def test_misuse_of_a_batch_is_an_error_and_not_a_crash():
    batch = native("CartPole-v1", 2)
    with pytest.raises(RuntimeError, match="before its reset"):
        batch.step()
    batch.reset(0, 0)
    batch.reset(1, 0)
    batch.actions[0][1] = 2
    with pytest.raises(ValueError, match=r"action 2 of environment 1 is not in Discrete\(2\)"):
        batch.step()
    for call in (lambda: batch.reset(2), lambda: batch.step(0, 3), lambda: batch.step(-1), lambda: batch.state(-1)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError, match="2 numbers given, its state has 4"):
        batch.set_state([0.0, 0.0])
    with pytest.raises(ValueError, match="unknown argument gravity"):
        native("Pendulum-v1", gravity=9.81)


def test_arrays_outlive_the_batch_that_made_them():
    batch = native("CartPole-v1", 1000)
    for i in range(1000):
        batch.reset(i, i)
    obs = batch.obs[0]
    kept = obs.copy()
    del batch
    assert np.array_equal(obs, kept)


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_make_gives_the_same_environment(name):
    ours, theirs = gymnasium.make(f"shoal/{name}"), gymnasium.make(name)
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert ours.observation_space == theirs.observation_space
    ours.action_space.seed(0)
    for episode in range(3):
        obs, _ = ours.reset(seed=episode)
        expected, _ = theirs.reset(seed=episode)
        assert obs.dtype == expected.dtype and obs.tobytes() == expected.tobytes()
        over = False
        while not over:
            action = ours.action_space.sample()
            got, want = ours.step(action), theirs.step(action)
            assert got[0].tobytes() == want[0].tobytes()
            assert got[1:4] == want[1:4]
            over = want[2] or want[3]


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*imum value is.*:UserWarning")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend.*:UserWarning")
@pytest.mark.parametrize("name", IDS)
def test_gymnasium_env_passes_gymnasiums_checker(name):
    check_env(gymnasium.make(f"shoal/{name}").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", IDS)
def test_rendering_draws_what_gymnasium_draws(name):
    pytest.importorskip("pygame")
    ours = gymnasium.make(f"shoal/{name}", render_mode="rgb_array")
    theirs = gymnasium.make(name, render_mode="rgb_array")
    ours.reset(seed=3)
    theirs.reset(seed=3)
    for _ in range(5):
        action = ours.action_space.sample()
        ours.step(action)
        theirs.step(action)
    picture = ours.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3
    assert np.array_equal(picture, theirs.render())
    ours.close()
    theirs.close()


def test_gymnasium_env_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="unknown argument length"):
        gymnasium.make("shoal/CartPole-v1", length=2)
    env = gymnasium.make("shoal/CartPole-v1")
    with pytest.raises(ValueError, match="no reset option"):
        env.reset(options={"gravity": -1})
    with pytest.raises(gymnasium.error.Error, match="render_mode"):
        env.unwrapped.render()
    shoal.envs.register()  # a second time changes nothing
    assert gymnasium.spec("shoal/CartPole-v1").reward_threshold == 475.0


@pytest.mark.parametrize(
    ("name", "value", "wrapper"),
    [
        ("episode_statistics", True, "RecordEpisodeStatistics"),
        ("max_episode_steps", 3, "TimeLimit"),
        ("reward_clip", [-0.1, 0], "ClipReward"),
    ],
)
def test_what_wrappers_do_around_a_single_environment_is_refused(name, value, wrapper):
    assert hasattr(gymnasium.wrappers, wrapper)
    with pytest.raises(ValueError, match=rf"no {name} .*gymnasium\.wrappers\.{wrapper}.*make_vec.*{name}=…"):
        shoal.envs.native.NativeEnv("shoal/Pendulum-v1", **{name: value})


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("CartPole-v1", [0.9, np.float32(1), np.array([1]), [1], None, "1", 2, -1, 2**70], [1, True, np.int8(1)]),
        ("Pendulum-v1", [[1, 2], None, "fast", {}], [[1], np.array([0.5]), np.array([1])]),
    ],
)
def test_an_action_that_is_none_of_the_environments_is_named(name, wrong, right):
    env = shoal.envs.native.NativeEnv(f"shoal/{name}")
    env.reset(seed=1)
    state = env.state.tolist()
    for action in wrong:
        with pytest.raises(ValueError) as refused:
            env.step(action)
        assert str(action) in str(refused.value) and repr(env.action_space) in str(refused.value)
    assert env.state.tolist() == state, "a refused action was played"
    for action in right:
        env.step(action)


@pytest.mark.parametrize("asks_first", [False, True])
def test_the_seed_of_a_first_reset_without_one_gives_the_same_again(asks_first):
    env, again = gymnasium.make("shoal/CartPole-v1"), gymnasium.make("shoal/CartPole-v1")
    asked = env.np_random_seed if asks_first else None
    first, _ = env.reset()
    assert 0 <= env.np_random_seed < 2**64 and asked in (None, env.np_random_seed)
    assert again.np_random_seed != env.np_random_seed
    assert again.reset(seed=env.np_random_seed)[0].tobytes() == first.tobytes()
    assert again.reset()[0].tobytes() == env.reset()[0].tobytes() != first.tobytes()
    env.reset(seed=3)
    assert env.np_random_seed == 3


def test_a_generator_of_the_callers_leaves_the_seed_unknown():
    env = shoal.envs.native.NativeEnv("shoal/CartPole-v1")
    env.np_random = np.random.default_rng(1)
    env.reset()
    assert env.np_random_seed == -1


def test_a_seed_beyond_64_bits_is_refused_and_changes_nothing():
    env, other = gymnasium.make("shoal/CartPole-v1"), gymnasium.make("shoal/CartPole-v1")
    env.reset(seed=2**64 - 1)
    other.reset(seed=2**64 - 1)
    with pytest.raises(ValueError, match=r"seeds from 0 to 2\*\*64 - 1, got 18446744073709551616"):
        env.reset(seed=2**64)
    assert env.np_random_seed == 2**64 - 1
    assert env.reset()[0].tobytes() == other.reset()[0].tobytes()


def test_a_plugins_path_with_a_colon_is_refused(tmp_path, monkeypatch):
    """SHOAL_PLUGINS has colons between paths: no worker would find it."""
    monkeypatch.setenv("SHOAL_PLUGINS", "")
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "some.so").write_bytes(b"no library")
    (tmp_path / "link.so").symlink_to(folder / "some.so")
    for path in (folder / "some.so", tmp_path / "link.so"):
        with pytest.raises(ValueError, match=r"a:b/some\.so has a ':'.*SHOAL_PLUGINS"):
            shoal.envs.load_plugin(path)
    assert os.environ["SHOAL_PLUGINS"] == ""


def test_importing_the_engine_loads_neither_numpy_nor_torch():
    code = "import sys, shoal._core; print([m for m in ('numpy', 'torch', 'gymnasium') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
