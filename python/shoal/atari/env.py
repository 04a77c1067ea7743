"""One Atari game, preprocessed: the emulator's frames in Python, their pixels in C++ (src/shoal/env/atari)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from shoal import _core
from shoal.atari.preprocessing import AtariPreprocessing, preprocessing_of
from shoal.reprs import never_raises

__all__ = ["AtariEnv"]

_NOOP, _FIRE = "NOOP", "FIRE"
# What the preprocessing is instead of.
_OF_RAW_FRAMES = ("obs_type", "continuous", "sound_obs")


class AtariEnv(gymnasium.Env[np.ndarray, Any]):
    """A game of `ale_py`, with what wrappers would do around it done in one place: no-ops, skipped frames, lives, FIRE, pixels
    and stack, as an AtariPreprocessing says. Gymnasium's wrappers, Stable-Baselines3's or CleanRL's around the same game
    give the same, bit for bit, for the same seeds and actions.

    Rewards are the game's own: `shoal.make_vec(atari=…)` clips them after its statistics have counted them. Infos have `lives`
    and, as `ale_py` calls them, `episode_frame_number` and `frame_number`.

    Args:
        env: an id that `ale_py` registers ("ALE/Pong-v5", "PongNoFrameskip-v4"), or such a specification. How many frames it
            skips itself is replaced by frame_skip; sticky actions stay as the id has them.
        preprocessing: an AtariPreprocessing, or what preprocessing_of() makes one of; None: the default.
        max_episode_steps: steps after which a game is truncated, beside the emulator's own limit of frames.
        env_kwargs: the game's own arguments, such as `repeat_action_probability`, `full_action_space`, `mode`, `render_mode`.

    Raises:
        TypeError: `env` is no Atari game.
        ValueError: an argument that contradicts the preprocessing.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}

    def __init__(
        self,
        env: str | EnvSpec,
        preprocessing: Any = None,
        max_episode_steps: int | None = None,
        **env_kwargs: Any,
    ) -> None:
        how = preprocessing_of(True if preprocessing is None else preprocessing)
        if how is None:
            raise ValueError("AtariEnv is the preprocessed game; gymnasium.make() gives the game as it is")
        self.preprocessing: AtariPreprocessing = how
        self.game = _game(env, env_kwargs)
        self.ale = self.game.ale
        self.render_mode = self.game.render_mode
        self.action_space = self.game.action_space
        meanings = self.get_action_meanings()
        if meanings[0] != _NOOP:
            raise ValueError(f"the first action of {env} is {meanings[0]}, not {_NOOP}")
        self._actions = list(self.game._action_set)
        fires = how.fire_reset and len(meanings) > 2 and meanings[1] == _FIRE
        self._opening = self._actions[1:3] if fires else []
        self._limit = max_episode_steps or 0
        self._make_screen(how)
        self._lives = self._steps = 0
        self._lost = self._over = self._between_lives = False

    @never_raises
    def __repr__(self) -> str:
        return f"<AtariEnv<{self.game.spec.id}>>"

    def _make_screen(self, how: AtariPreprocessing) -> None:
        rows, columns = self.ale.getScreenDims()
        self._screen = _core.env.AtariScreen(
            (columns, rows),
            how.size or (columns, rows),
            how.grayscale_obs,
            how.pixels,
            how.frame_stack or 0,
            how.padding_type == "zero",
        )
        self._earlier, self._later = self._screen.frames
        shape = self._screen.observation().shape
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        pools = how.max_pool and how.frame_skip > 1
        self._unseen = range(how.frame_skip - (2 if pools else 1))  # frames that nobody looks at
        self._pools = pools
        # At a game's end Gymnasium's wrapper looks at no more frames; the others look at the last one.
        self._stops_early = how.pixels == "gymnasium"
        self._stops_at_life_loss = how.terminal_on_life_loss and how.stop_at_life_loss

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins an episode: the next life of the game where the last one ended with a life and neither a seed nor options
        are given, else a new game."""
        info: dict[str, Any] = {}
        goes_on = self._between_lives and seed is None and not options
        self._between_lives = False
        if goes_on:
            self._play(self._actions[0])
        if not goes_on or self._over:
            info = self._new_game(seed, options)
        for action in self._opening:
            self._play(action)
            if self._lost:
                self._play(self._actions[0])
            if self._over:
                info = self._new_game(seed, options)
        self._screen.begin()
        return self._screen.observation(), info | self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Plays an action for frame_skip frames.

        Args:
            action: of `action_space`: a number into get_action_meanings(), or a Box's where the game's actions are continuous.

        Returns:
            The observation of `observation_space`, uint8; the sum of the frames' rewards, whose sign is not taken here;
            whether the game is over, or a life where lives end episodes; whether a limit of steps or of frames was reached;
            and the info.
        """
        reward = self._play(self._actions[action])
        self._steps += 1
        if self._lost and self.preprocessing.whole_games:
            reward += self._next_life()
            self._screen.begin()
        else:
            self._screen.push()
        terminated = self._over and self.ale.game_over(with_truncation=False)
        truncated = (self._over and self.ale.game_truncated()) or 0 < self._limit <= self._steps
        if self._lost and not self._over:
            terminated = True
            self._between_lives = not truncated
        return self._screen.observation(), reward, terminated, truncated, self._info()

    def render(self) -> Any:
        return self.game.render()

    def close(self) -> None:
        self.game.close()

    def get_action_meanings(self) -> list[str]:
        """The name of each action."""
        return list(self.game.get_action_meanings())

    @property
    def _np_random(self) -> np.random.Generator | None:
        """The game's generator, which no-ops are drawn from: what Gymnasium's np_random gives."""
        generator: np.random.Generator | None = self.game._np_random
        return generator

    @_np_random.setter
    def _np_random(self, value: np.random.Generator | None) -> None:
        self.game._np_random = value

    @property
    def _np_random_seed(self) -> int | None:
        """The seed of the game's last reset with one: what Gymnasium's np_random_seed gives."""
        seed: int | None = self.game._np_random_seed
        return seed

    @_np_random_seed.setter
    def _np_random_seed(self, value: int | None) -> None:
        self.game._np_random_seed = value

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = self.game._get_info()
        return info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        _, info = self.game.reset(seed=seed, options=options)
        if self.preprocessing.noop_max > 0:
            for _ in range(self.game.np_random.integers(1, self.preprocessing.noop_max + 1)):
                self.ale.act(self._actions[0])
                if self.ale.game_over():
                    _, info = self.game.reset(seed=seed, options=options)
        self._over = self._lost = False
        self._steps = 0
        self._lives = self.ale.lives()
        self._see(1)
        self._screen.pool_one(1)
        return dict(info)

    def _next_life(self) -> float:
        """What reset() does between two lives, as a part of the game. The reward of it."""
        self._lost = False
        reward = self._play(self._actions[0])
        for action in self._opening:
            if self._over:
                break
            reward += self._play(action)
            if self._lost:
                reward += self._play(self._actions[0])
        self._lost = False
        return reward

    def _play(self, action: Any) -> float:
        """An action for frame_skip frames, or until the game is over, or a life where steps stop at its loss; the picture is of
        them. The reward of it."""
        reward = self._frames(action)
        self._over = self.ale.game_over()
        if self._stops_at_life_loss:
            self._lost = self._lost and not self._over
            return reward
        lives = self.ale.lives()
        # Qbert shows 0 lives for some frames before the game is over.
        self._lost = self.preprocessing.terminal_on_life_loss and not self._over and 0 < lives < self._lives
        self._lives = lives
        return reward

    def _life_or_game_over(self) -> bool:
        """Whether this frame lost a life, be it the last one, or ended the game. To be asked once after each frame."""
        lives = self.ale.lives()
        self._lost = lives < self._lives
        self._lives = lives
        return self._lost or bool(self.ale.game_over())

    def _frames(self, action: Any) -> float:
        act: Callable[[Any], int] = self.ale.act
        ends: Callable[[], bool] = self._life_or_game_over if self._stops_at_life_loss else self.ale.game_over
        screen = self._screen
        reward = 0.0
        for _ in self._unseen:
            reward += act(action)
            if ends():
                return reward
        if self._pools:
            reward += act(action)
            ended = ends()
            if ended and self._stops_early:
                return reward
            self._see(0)
            if ended:
                screen.pool()
                return reward
        reward += act(action)
        if ends() and self._stops_early:
            if self._pools:
                screen.pool_more()
            return reward
        self._see(1)
        if self._pools:
            screen.pool()
        else:
            screen.pool_one(1)
        return reward

    def _see(self, which: int) -> None:
        """The emulator's frame as the earlier (0) or the later (1) of two."""
        self.ale.getScreen(self._later if which else self._earlier)
        if not self._screen.grabbed(which):
            self._screen.learn(which, self.ale.getScreenGrayscale(), self.ale.getScreenRGB())


def _game(env: str | EnvSpec, env_kwargs: dict[str, Any]) -> Any:
    """The environment of ale_py, without anything around it."""
    if not isinstance(env, str | EnvSpec):
        raise TypeError(f"AtariEnv takes the id of a game, such as 'ALE/Pong-v5', or its EnvSpec, got {env!r}")
    if isinstance(env, str) and env not in gymnasium.registry:
        importlib.import_module("ale_py")  # which registers its games
    for name in _OF_RAW_FRAMES:
        if env_kwargs.get(name):
            raise ValueError(
                f"{name}={env_kwargs[name]!r} is of raw frames, which are preprocessed here: give atari=False"
            )
    if env_kwargs.get("frameskip", 1) != 1:
        raise ValueError(
            f"frameskip={env_kwargs['frameskip']!r}: the preprocessing skips frames itself; say how many by "
            "AtariPreprocessing(frame_skip=…)"
        )
    spec = gymnasium.spec(env) if isinstance(env, str) else env
    if spec.additional_wrappers:
        raise ValueError(
            f"{spec.id} is registered with wrappers of raw frames, which are preprocessed here: give atari=False"
        )
    try:
        game = gymnasium.make(spec, disable_env_checker=True, **{"frameskip": 1, **env_kwargs}).unwrapped
    except TypeError as error:
        if "keyword argument 'frameskip'" not in str(error):
            raise
        raise TypeError(f"{spec.id} is no Atari game: it takes no frameskip=") from None
    if not hasattr(game, "ale"):
        raise TypeError(f"{spec.id} is no Atari game: it has no emulator")
    return game
