"""Atari's games as EnvPool's C++ plays them: its preprocessing, its numbers of no-ops, its infos."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from shoal.atari import AtariEnv, AtariPreprocessing
from shoal.vector import extras

__all__ = ["EnvPoolsGame", "full_name", "short_names"]

_STEPS = 27_000
"""EnvPool's time limit: 108,000 frames."""


class EnvPoolsGame(AtariEnv):
    """One game, as `envpool.make("Pong-v5")` has it; its arguments are EnvPool's.

    It differs from shoal.AtariEnv in how an episode begins: with 1 to `noop_max` frames without an action, or one less and
    FIRE for one frame where the game has it; after a lost life, too (`episodic_life`), where the stack of pictures goes on.
    Rewards are the game's own here.

    Raises:
        ValueError: for an argument that is out of range.
    """

    def __init__(
        self,
        env_id: str,
        *,
        stack_num: int = 4,
        frame_skip: int = 4,
        noop_max: int = 30,
        zero_discount_on_life_loss: bool = False,
        episodic_life: bool = False,
        use_fire_reset: bool = True,
        img_height: int = 84,
        img_width: int = 84,
        gray_scale: bool = True,
        use_inter_area_resize: bool = True,
        mode: int = -1,
        difficulty: int = -1,
        full_action_space: bool = False,
        repeat_action_probability: float = 0.0,
        max_episode_steps: int = _STEPS,
        render_mode: str | None = None,
    ) -> None:
        if noop_max < 1:
            raise ValueError(f"make(noop_max={noop_max}) takes 1 or more, as in EnvPool")
        if not use_inter_area_resize:
            raise ValueError("make(use_inter_area_resize=False): pictures are made smaller by area; leave it out")
        chosen = {"mode": mode, "difficulty": difficulty}
        preprocessing = AtariPreprocessing(
            noop_max=noop_max,
            frame_skip=frame_skip,
            terminal_on_life_loss=episodic_life,
            screen_size=(img_width, img_height),
            grayscale_obs=gray_scale,
            frame_stack=stack_num,
        )
        super().__init__(
            env_id,
            preprocessing,
            max_episode_steps,
            full_action_space=full_action_space,
            repeat_action_probability=repeat_action_probability,
            max_num_frames_per_episode=0,
            render_mode=render_mode,
            **{name: number for name, number in chosen.items() if number >= 0},
        )
        fires = [action for action in self._actions if action.value == 1]
        self._opening = fires[:1] if use_fire_reset else []
        self._starts = Twister(0)
        self._pooled = min(frame_skip, 2)
        if not gray_scale:
            self.observation_space = spaces.Box(0, 255, (3 * stack_num, img_height, img_width), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode. Of a game that goes on after a lost life, unless a seed or options are given."""
        if seed is not None:
            self._starts = Twister(seed)
        noops = self._starts.below(self.preprocessing.noop_max) + 1 - len(self._opening)
        begins = seed is not None or bool(options) or not self._between_lives
        self._between_lives = False
        if begins:
            self._begin(seed)
        act, over = self.ale.act, self.ale.game_over
        for _ in range(noops):
            act(self._actions[0])
            if over():
                self.ale.reset_game()
                begins = True
        for action in self._opening:
            act(action)
        self._see(0)
        self._screen.pool_one(0)
        if begins:
            self._screen.begin()
        else:
            self._screen.push()
        self._lives = self.ale.lives()
        return self._observation(), self._told(0.0)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        act, game_over, pooled = self.ale.act, self.ale.game_over, self._pooled
        chosen, left = self._actions[action], self.preprocessing.frame_skip
        reward, over = 0.0, False
        while left and not over:
            reward += act(chosen)
            over = game_over()
            if left <= pooled:
                self._see(pooled - left)
            left -= 1
        if left == 0 and pooled == 2:
            self._screen.pool()
        elif left < pooled:
            self._screen.pool_one(0)
        self._screen.push()  # where the game was over before a frame that is looked at: the last picture again
        self._steps += 1
        lives = self.ale.lives()
        lost = self.preprocessing.terminal_on_life_loss and 0 < lives < self._lives
        self._lives = lives
        truncated = self._steps >= self._limit
        self._between_lives = lost and not over and not truncated
        return self._observation(), reward, (over or lost) and not truncated, truncated, self._told(reward)

    def _begin(self, seed: int | None) -> None:
        if seed is None:
            self.ale.reset_game()
        else:
            self.game.reset(seed=seed)
        self._steps = 0

    def _observation(self) -> np.ndarray:
        pictures: np.ndarray = self._screen.observation()
        if self.preprocessing.grayscale_obs:
            return pictures
        return pictures.transpose(0, 3, 1, 2).reshape(self.observation_space.shape or ())

    def _told(self, reward: float) -> dict[str, Any]:
        return {
            "lives": np.int32(self._lives),
            "reward": np.float32(reward),
            "terminated": np.int32(self.ale.game_over()),
            "ram": self.ale.getRAM(),
            "elapsed_step": np.int32(self._steps),
        }


class Twister:
    """C++'s std::mt19937 and libstdc++'s std::uniform_int_distribution over it, which EnvPool draws numbers of no-ops from."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed & 0xFFFFFFFF)

    def below(self, count: int) -> int:
        """A number from 0 to count - 1 (Lemire 2019, "Fast random integer generation in an interval")."""
        product = self._word() * count
        while (product & 0xFFFFFFFF) < (1 << 32) % count:
            product = self._word() * count
        return product >> 32

    def _word(self) -> int:
        return int(self._words.randint(0, 1 << 32, dtype=np.uint32))


def full_name(task_id: str) -> str | None:
    """Gymnasium's id of the game that EnvPool calls so: ALE/TicTacToe3D-v5 for TicTacToe3d-v5. None for what is no game."""
    if "/" in task_id or not task_id.endswith("-v5"):
        return None
    extras.provide(f"ALE/{task_id}")
    return {name.lower(): full for name, full in short_names().items()}.get(task_id.lower())


def short_names() -> dict[str, str]:
    """Those of Gymnasium's ids that are games, by the name that EnvPool has for them."""
    games = (name for name in gymnasium.registry if name.startswith("ALE/") and name.endswith("-v5"))
    return {name.removeprefix("ALE/"): name for name in games if "-ram" not in name}
