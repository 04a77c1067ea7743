"""One native environment as a `gymnasium.Env`."""

from __future__ import annotations

import json
import operator
import secrets
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from shoal import _core
from shoal.vector.episodes import options_text

__all__ = ["NativeEnv"]


class NativeEnv(gymnasium.Env[Any, Any]):
    """Steps the native environment `env_id` in this process.

    It has no time limit of its own: `gymnasium.make` wraps it in `TimeLimit`, as it does every environment. Where
    Gymnasium has an environment of the same name, that one draws this one's state; environments of pictures draw themselves.

    Args:
        env_id: an id of the native registry, such as "shoal/CartPole-v1".
        render_mode: None, "rgb_array" (render() returns uint8 [height, width, 3]) or "human" (a window).
        kwargs: the environment's own arguments.

    Raises:
        ValueError: for an unknown id or argument, an argument that is a wrapper's here, or a render mode where nothing can
            draw it.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}

    def __init__(self, env_id: str, render_mode: str | None = None, **kwargs: Any) -> None:
        for name, wrapper in _OF_WRAPPERS.items():
            if name in kwargs:
                raise ValueError(
                    f"{env_id} takes no {name} as a single environment: wrap it in gymnasium.wrappers.{wrapper}, or say "
                    f"shoal.make_vec({env_id!r}, …, {name}=…)"
                )
        self._batch = _core.env.BatchEnv(env_id, 1, json.dumps({**kwargs, "max_episode_steps": -1}))
        self.observation_space = self._batch.observation_space
        self.action_space = self._batch.action_space
        self.render_mode = render_mode
        self._obs = self._batch.obs
        self._actions = self._batch.actions
        self._choice = self._actions[0] if isinstance(self.action_space, spaces.Discrete) else None
        self._action: Any = None
        self._np_random, self._np_random_seed = seeding.np_random(secrets.randbits(64))
        self._was_reset = False
        self._painter = _painter(env_id, render_mode) if render_mode is not None else None
        if self._painter is not None:
            self.metadata = self._painter.metadata

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode. The same seed gives the episode that Gymnasium's environment of the name would begin.

        Args:
            seed: from 0 to 2**64 - 1. A first reset without one draws it: `np_random_seed` says which.
            options: the environment's own.
        """
        if isinstance(seed, int) and seed >= 2**64:
            raise ValueError(f"native environments take seeds from 0 to 2**64 - 1, got {seed}")
        super().reset(seed=seed)
        if not self._was_reset and self._np_random_seed != -1:  # which it is where np_random was set
            seed = self._np_random_seed
        self._batch.reset(0, seed, options_text(options))
        self._was_reset = True
        self._action = None
        if self.render_mode == "human":
            self.render()
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            if self._choice is not None:
                self._choice[0] = operator.index(action)
            else:
                self._store(action)
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise ValueError(f"step(): action {action!r} is not in {self.action_space}") from None
        self._batch.step()
        self._action = action
        if self.render_mode == "human":
            self.render()
        return (
            self._observation(),
            float(self._batch.reward[0]),
            bool(self._batch.terminated[0]),
            bool(self._batch.truncated[0]),
            {},
        )

    def render(self) -> Any:
        if self._painter is None:
            raise gymnasium.error.ResetNeeded("render() needs the environment to be made with a render_mode")
        self._painter.state = self.state
        if hasattr(self._painter, "last_u"):  # Pendulum draws the torque of the last step
            self._painter.last_u = None if self._action is None else float(np.clip(self._action[0], -2.0, 2.0))
        return self._painter.render()

    def close(self) -> None:
        if self._painter is not None:
            self._painter.close()

    @property
    def state(self) -> np.ndarray:
        """The numbers that, with the action, decide the next step (float64)."""
        return np.array(self._batch.state())

    @state.setter
    def state(self, values: Any) -> None:
        self._batch.set_state([float(value) for value in values])

    def _store(self, action: Any) -> None:
        """Raises an error of NumPy's or Python's for what is no such action."""
        for row, part in zip(self._actions, _parts(self.action_space, action), strict=True):
            if np.asarray(part).dtype.kind not in ("biuf" if row.dtype.kind == "f" else "biu"):
                raise TypeError("not of the numbers that the space has")
            row[0] = part

    def _observation(self) -> Any:
        return _sample(self.observation_space, iter(self._obs))


# What the engine of shoal.make_vec does around native environments, and does not here: Gymnasium's wrappers for it.
_OF_WRAPPERS = {
    "episode_statistics": "RecordEpisodeStatistics",
    "max_episode_steps": "TimeLimit",
    "reward_clip": "ClipReward",
}
# Environments whose state another one of Gymnasium's draws than that of their name.
_DRAWN_BY = {"shoal/CartPoleNoVel-v1": "CartPole-v1"}
# What makes an environment observe the picture that it renders as.
_PICTURES = {"shoal/SegmentedWorld-v0": {"observation": "rgb"}}


class _PicturePainter:
    """Draws the states of an environment of pictures with another one, whatever it observes itself."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, env_id: str) -> None:
        self._batch = _core.env.BatchEnv(env_id, 1, json.dumps(_PICTURES[env_id]))
        self.state: np.ndarray = np.array(())

    def render(self) -> np.ndarray:
        self._batch.set_state(self.state.tolist())
        picture: np.ndarray = self._batch.obs[0][0].copy()
        return picture

    def close(self) -> None:
        pass


def _painter(env_id: str, render_mode: str) -> Any:
    """What draws the environment, given its `state`: at best Gymnasium's environment of the same name."""
    if env_id in _PICTURES:
        if render_mode not in _PicturePainter.metadata["render_modes"]:
            raise ValueError(f"{env_id} draws pictures, render_mode='rgb_array', and not {render_mode!r}")
        return _PicturePainter(env_id)
    twin = _DRAWN_BY.get(env_id, env_id.rpartition("/")[2])
    if twin == env_id or twin not in gymnasium.registry:
        raise ValueError(f"{env_id} cannot be drawn: Gymnasium has no environment {twin} whose renderer could be used")
    painter: Any = gymnasium.make(twin, render_mode=render_mode, disable_env_checker=True).unwrapped
    if not hasattr(painter, "last_u") and twin.startswith("Pendulum"):
        painter.last_u = None
    painter.reset(seed=0)
    return painter


def _parts(space: spaces.Space[Any], value: Any) -> Iterator[Any]:
    """The arrays that a sample of `space` consists of, in the order of the native side."""
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from _parts(child, value[key])
    elif isinstance(space, spaces.Tuple):
        for child, part in zip(space.spaces, value, strict=True):
            yield from _parts(child, part)
    else:
        yield value


def _sample(space: spaces.Space[Any], rows: Iterator[np.ndarray]) -> Any:
    """A sample of `space` of its own memory, from the first row of each array."""
    if isinstance(space, spaces.Dict):
        return {key: _sample(child, rows) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_sample(child, rows) for child in space.spaces)
    return next(rows)[0].copy()
