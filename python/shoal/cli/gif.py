"""An episode as an animated image."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli.console import fail

if TYPE_CHECKING:
    from shoal.learn.environments import EnvOptions

_MOST_FRAMES = 500
_SHORTEST_FRAME_MS = 20  # viewers slow shorter ones down
_LONGEST_FRAME_MS = 1000
"""Pictures that are alike become one frame, whose time in a GIF is 655 s at most."""
_TO_BE_DRAWN = (
    "its class is to take render_mode='rgb_array', to list it in metadata['render_modes'], and to return a picture from render(), an "
    "array (height, width, 3) of uint8"
)
MOST_STEPS = 200_000
"""After which an episode is cut, as evaluations cut theirs: some have no end."""


def record(env_id: str, options: EnvOptions, act: Callable[[Any], Any], seed: int) -> tuple[float, bool, bytes]:
    """Plays one episode with `act(observation) -> action`.

    Args:
        options: of its evaluations.

    Returns:
        Its return, whether it ended before MOST_STEPS, and the image.
    """
    import gymnasium

    import shoal.envs  # noqa: F401  native ids become known to gymnasium.make

    # pygame opens no window for rgb_array, but looks for a display, and greets.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        env = _made(env_id, options)
    except (ValueError, gymnasium.error.Error) as error:
        fail(f"{env_id} cannot be drawn: {error}")
    except TypeError as error:
        if "'render_mode'" not in str(error):
            raise
        fail(f"{env_id} cannot be drawn: {_TO_BE_DRAWN}")
    film = _Film(env_id)
    try:
        total, over = _play(env, act, seed, film)
        image = film.image(env.metadata.get("render_fps") or 30)
    finally:
        env.close()
    return total, over, image


def _play(env: Any, act: Callable[[Any], Any], seed: int, film: _Film) -> tuple[float, bool]:
    """The episode's return, and whether it has ended."""
    total = 0.0
    observation, _ = env.reset(seed=seed)
    film.add(env)
    for _ in range(MOST_STEPS):
        observation, reward, terminated, truncated, _ = env.step(act(observation))
        total += float(reward)
        film.add(env)
        if terminated or truncated:
            return total, True
    return total, False


def _made(env_id: str, options: EnvOptions) -> Any:
    """As shoal.make_vec builds it, but by Gymnasium's own wrappers, around one that can be drawn."""
    import gymnasium

    from shoal.atari import AtariEnv
    from shoal.atari.preprocessing import preprocessing_of
    from shoal.vector.wrappers import wrapped, wrappers_of

    given = {**(options.env_kwargs or {}), "render_mode": "rgb_array"}
    if options.max_episode_steps is not None:
        given["max_episode_steps"] = options.max_episode_steps
    if (atari := preprocessing_of(options.atari)) is not None:
        if options.frame_stack is not None:
            atari = replace(atari, frame_stack=options.frame_stack)
        return wrapped(lambda: AtariEnv(env_id, atari, **given), wrappers_of(options.wrappers))
    env = wrapped(lambda: gymnasium.make(env_id, **given), wrappers_of(options.wrappers))
    return env if options.frame_stack is None else gymnasium.wrappers.FrameStackObservation(env, options.frame_stack)


class _Film:
    """Every stride-th frame, the stride doubled whenever they become too many: an episode may be long."""

    def __init__(self, env_id: str) -> None:
        self._env_id = env_id
        self._frames: list[Any] = []
        self._stride = 1
        self._seen = 0

    def add(self, env: Any) -> None:
        if self._seen % self._stride == 0:
            self._frames.append(_frame(env, self._env_id))
            if len(self._frames) > _MOST_FRAMES:
                self._frames = self._frames[::2]
                self._stride *= 2
        self._seen += 1

    def image(self, frames_per_second: float) -> bytes:
        shown_ms = self._stride * 1000 / frames_per_second
        every = max(1, round(_SHORTEST_FRAME_MS / shown_ms))
        first, *others = self._frames[::every]
        duration = min(max(_SHORTEST_FRAME_MS, round(shown_ms * every)), _LONGEST_FRAME_MS)
        out = io.BytesIO()
        first.save(out, format="GIF", save_all=True, append_images=others, duration=duration, loop=0)
        return out.getvalue()


def _frame(env: Any, env_id: str) -> Any:
    import gymnasium
    from PIL import Image

    try:
        pixels = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        from shoal.cli.environments import install_command

        what, _, _ = str(error).partition(", run ")  # a command for Gymnasium's own extra
        fail(f"drawing needs another package ({what}):  {install_command('shoal[render]')}")
    except NotImplementedError:
        pixels = None
    if not _is_picture(pixels):
        fail(f"{env_id} cannot be drawn: {_TO_BE_DRAWN}")
    return Image.fromarray(pixels).quantize(64, method=Image.Quantize.FASTOCTREE)


def _is_picture(pixels: Any) -> bool:
    """Of colours, also with their opacity, or of grey."""
    is_bytes = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    return is_bytes and pixels.ndim in (2, 3) and pixels.shape[2:] in ((), (3,), (4,))
