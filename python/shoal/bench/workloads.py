"""What benchmarks step. Needs Gymnasium and NumPy only: peers import it without Shoal."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["WORKLOADS", "BusyEnv", "ImageEnv", "NoopEnv", "SleepEnv", "Workload"]


class NoopEnv(gymnasium.Env[np.ndarray, int]):
    """Does nothing: what is left is the cost of getting there and back."""

    observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (4,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._obs, 1.0, False, False, {}


class ImageEnv(NoopEnv):
    """Four stacked Atari-sized frames, 28 KB an observation."""

    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)

    def __init__(self) -> None:
        self._obs = np.zeros((84, 84, 4), np.uint8)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._obs[0, 0, 0] += 1
        return self._obs, 1.0, False, False, {}


class BusyEnv(NoopEnv):
    """Computes for one millisecond of CPU time, as a small simulator does: time in which others have the CPU is no help."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        end = time.thread_time() + 1e-3
        while time.thread_time() < end:
            pass
        return self._obs, 1.0, False, False, {}


class SleepEnv(NoopEnv):
    """Waits for something else, one millisecond in the mean, exponentially distributed: a few steps take much longer."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random.Random(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._random.seed(seed)
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self._random.expovariate(1e3))
        return self._obs, 1.0, False, False, {}


def make_cartpole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


# Of Atari's Pong, for everybody: 1 to 30 no-ops at the begin, an action for four frames, the larger of the last two of them,
# grey, 84 x 84, the last four stacked; rewards as they are, no sticky actions, no fire at the begin, 108,000 frames at most. Frames
# in Python are grey from the start, and OpenCV has one thread: all others would only cost time here.
PONG_NOOPS, PONG_SKIP, PONG_SIZE, PONG_STACK, PONG_FRAMES = 30, 4, 84, 4, 108_000


def make_pong() -> gymnasium.Env[Any, Any]:
    import ale_py  # noqa: F401  registers it
    import cv2
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    cv2.setNumThreads(1)
    env = gymnasium.make(
        "ALE/Pong-v5",
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=PONG_FRAMES,
        obs_type="grayscale",
    )
    env = AtariPreprocessing(env, noop_max=PONG_NOOPS, frame_skip=PONG_SKIP, screen_size=PONG_SIZE)
    return FrameStackObservation(env, PONG_STACK)


@dataclass(frozen=True)
class Workload:
    """What is stepped.

    Attributes:
        title: heads its table.
        make: one environment, in Python; None where every contestant brings its own.
        native_id: Shoal's name of its own.
        subjects: whom the others are compared with: the first of these that is measured.
        peer: the virtual environment of benchmarks/peers that has what `make` needs; None where Gymnasium and NumPy will do.
        waits: steps wait instead of computing: a worker for each environment then keeps all of them going on any number
            of CPUs, and is what contestants that share workers among environments get.
    """

    title: str
    make: Callable[[], gymnasium.Env[Any, Any]] | None
    native_id: str | None = None
    subjects: tuple[str, ...] = ("shoal-auto", "shoal-process")
    peer: str | None = None
    waits: bool = False


# The actions are 0 and 1; in Pong these do nothing and fire.
WORKLOADS: dict[str, Workload] = {
    "cartpole": Workload("CartPole-v1 in Python", make_cartpole),
    "noop": Workload("an environment that does nothing", NoopEnv),
    "image": Workload("84 x 84 x 4 images", ImageEnv),
    "busy": Workload("1 ms of computing a step", BusyEnv),
    "sleep-exp": Workload(
        "1 ms of waiting a step, in the mean", SleepEnv, subjects=("shoal-async", "shoal-process"), waits=True
    ),
    "pong": Workload("Atari's Pong", make_pong, subjects=("shoal-atari", "shoal-auto"), peer="ale"),
    "native-cartpole": Workload(
        "CartPole-v1, each library's own", None, "shoal/CartPole-v1", subjects=("shoal-native",)
    ),
}
