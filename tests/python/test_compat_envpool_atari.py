"""shoal.compat.envpool's games of Atari: what EnvPool's preprocessing makes of the emulator, bit for bit. Needs the packages of
requirements-atari.txt."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal.compat.envpool as envpool
from shoal.compat.envpool.atari import EnvPoolsGame, Twister

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")


class Straight:
    """The same game written straight down: all of every frame, OpenCV's resizing, a list of pictures."""

    def __init__(
        self, game: str, seed: int, noop_max: int = 30, episodic_life: bool = False, fire: bool = True
    ) -> None:
        self.game = gymnasium.make(
            f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0, max_num_frames_per_episode=0
        ).unwrapped
        self.ale = self.game.ale  # type: ignore[attr-defined]
        self.game.reset(seed=seed)
        self.actions = self.game._action_set  # type: ignore[attr-defined]
        self.fire = fire and any(action.value == 1 for action in self.actions)
        self.draws, self.noop_max, self.episodic_life = Twister(seed), noop_max, episodic_life
        self.lives = 0
        self.last: Any = None
        self.pictures: list[np.ndarray] = []

    def reset(self, new: bool = True) -> np.ndarray:
        if new:
            self.ale.reset_game()
        for _ in range(self.draws.below(self.noop_max) + 1 - self.fire):
            self.ale.act(0)
            if self.ale.game_over():
                self.ale.reset_game()
                new = True
        if self.fire:
            self.ale.act(1)
        self.last = self.ale.getScreenGrayscale()
        self.pictures = [*([self.small()] * 4 if new else self.pictures[1:] + [self.small()])]
        self.lives = self.ale.lives()
        return np.stack(self.pictures)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        reward, frames, over = 0.0, [], False
        for n in range(4):
            reward += self.ale.act(self.actions[action])
            over = self.ale.game_over()
            if n >= 2:
                frames.append(self.ale.getScreenGrayscale())
            if over:
                break
        if frames:
            self.last = np.maximum.reduce(frames)
        self.pictures = [*self.pictures[1:], self.small()]
        lost = self.episodic_life and 0 < self.ale.lives() < self.lives
        self.lives = self.ale.lives()
        return np.stack(self.pictures), reward, over, lost

    def small(self) -> np.ndarray:
        picture: np.ndarray = cv2.resize(self.last, (84, 84), interpolation=cv2.INTER_AREA)
        return picture


@pytest.mark.parametrize(
    ("game", "arguments"),
    [
        ("Pong", {"noop_max": 5}),
        ("Breakout", {"episodic_life": True, "noop_max": 30}),
        ("MsPacman", {"episodic_life": True, "noop_max": 3}),
        ("Qbert", {"use_fire_reset": False, "noop_max": 1}),
    ],
)
def test_a_game_is_the_emulator_as_envpool_steps_it(game: str, arguments: dict[str, Any]) -> None:
    env = envpool.make(f"{game}-v5", env_type="gymnasium", num_envs=1, seed=4, num_threads=1, **arguments)
    straight = Straight(
        game, 4, arguments["noop_max"], arguments.get("episodic_life", False), arguments.get("use_fire_reset", True)
    )
    obs, info = env.reset()
    assert (obs[0] == straight.reset()).all() and info["lives"].tolist() == [straight.lives]
    ends = steps = 0
    over = lost = False
    for action in np.random.default_rng(1).integers(env.action_space.n, size=500):
        obs, rew, term, trunc, info = env.step(np.array([action]))
        if over or lost:
            expected: Any = (straight.reset(new=over), 0.0, False, False)
            steps = 0 if over else steps
        else:
            expected = straight.step(int(action))
            steps += 1
        over, lost = expected[2:]
        assert (obs[0] == expected[0]).all()
        assert (rew[0], term[0], trunc[0]) == (expected[1], over or lost, False)
        assert info["reward"].tolist() == rew.tolist() and info["elapsed_step"].tolist() == [steps]
        assert (info["lives"][0], info["terminated"][0]) == (straight.lives, straight.ale.game_over())
        assert (info["ram"][0] == straight.ale.getRAM()).all()
        ends += over or lost
    assert ends > (1 if env.config["episodic_life"] else -1)
    env.close()


def test_what_a_game_is_asked_for() -> None:
    colours = envpool.make("Breakout-v5", env_type="gym", num_envs=2, gray_scale=False, stack_num=3, frame_skip=2)
    grey = envpool.make("Breakout-v5", env_type="gym", num_envs=2, img_height=60, img_width=50, full_action_space=True)
    with colours, grey:
        assert colours.observation_space.shape == (9, 84, 84) and colours.reset()[0].shape == (2, 9, 84, 84)
        assert grey.observation_space.shape == (4, 60, 50) and grey.action_space.n == 18
        obs, info = grey.reset()
        assert obs.shape == (2, 4, 60, 50) and obs.dtype == np.uint8
        assert {key: (info[key].dtype.name, info[key].shape) for key in ("lives", "reward", "terminated", "ram")} == {
            "lives": ("int32", (2,)),
            "reward": ("float32", (2,)),
            "terminated": ("int32", (2,)),
            "ram": ("uint8", (2, 128)),
        }
        assert info["elapsed_step"].dtype == np.int32
        assert grey.config["noop_max"] == 30 and grey.config["max_episode_steps"] == 27_000


def test_time_limits_and_the_sign_of_rewards() -> None:
    with envpool.make("Pong-v5", env_type="gymnasium", num_envs=1, max_episode_steps=3, reward_clip=True) as env:
        env.reset()
        told = [env.step(np.array([0]))[2:] for _ in range(4)]
        assert [(term[0], trunc[0], info["elapsed_step"][0]) for term, trunc, info in told] == [
            *((False, False, n) for n in (1, 2)),
            (False, True, 3),
            (False, False, 0),
        ]
    with envpool.make("MsPacman-v5", env_type="gymnasium", num_envs=1, reward_clip=True) as env:
        env.reset()
        told = [env.step(np.array([n % 5])) for n in range(300)]
        own = [float(info["reward"][0]) for *_, info in told]
        assert max(own) >= 10 and [float(rew[0]) for _, rew, *_ in told] == np.sign(own).tolist()


def test_a_programs_own_reset_begins_a_new_game_between_two_lives() -> None:
    game = EnvPoolsGame("ALE/Breakout-v5", episodic_life=True)
    game.reset(seed=3)
    while not game.step(1)[2]:
        pass
    assert game.reset()[1]["lives"] == 4
    while not game.step(1)[2]:
        pass
    assert game.reset(options={"force_reset": True})[1]["lives"] == 5
    game.close()
    with envpool.make("Breakout-v5", env_type="gymnasium", num_envs=1, episodic_life=True) as env:
        env.reset()
        while not env.step(np.array([1]))[2][0]:
            pass
        assert env.reset()[1]["lives"].tolist() == [5]
        while not env.step(np.array([1]))[2][0]:
            pass
        env.async_reset()
        assert env.recv()[4]["lives"].tolist() == [5]


def test_numbers_of_no_ops_are_those_of_a_mersenne_twister() -> None:
    """The words of std::mt19937 with the seed 5489 begin so, and its 10,000th is 4123659995 (ISO C++, [rand.predef])."""
    words = Twister(5489)
    drawn = [words._word() for _ in range(10_000)]
    assert drawn[0] == 3499211612 and drawn[-1] == 4123659995
    again = Twister(5489)
    assert [again.below(30) for _ in range(5)] == [word * 30 >> 32 for word in drawn[:5]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noop_max": 0}, "1 or more"),
        ({"use_inter_area_resize": False}, "by area"),
        ({"frame_stack": 4}, "say stack_num"),
        ({"atari": True}, "EnvPool's preprocessing"),
    ],
)
def test_what_a_game_cannot_be_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        envpool.make("Pong-v5", env_type="gymnasium", **arguments)


def test_names_are_envpools() -> None:
    assert {"Pong-v5", "TicTacToe3D-v5", "ALE/Pong-v5"} <= set(envpool.list_all_envs())
    with envpool.make("TicTacToe3d-v5", env_type="gymnasium") as env:
        assert env.spec.id == "TicTacToe3d-v5"
    with pytest.raises(gymnasium.error.NameNotFound):
        envpool.make("Pongg-v5", env_type="gymnasium")


def test_a_misspelt_game_is_told_with_the_nearest_by_envpools_name() -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match="no environment 'Brakout-v5'. Did you mean 'Breakout-v5'"):
        envpool.make("Brakout-v5", "gymnasium")
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean 'CartPole-v1'"):
        envpool.make("CartPol-v1", "gymnasium")
