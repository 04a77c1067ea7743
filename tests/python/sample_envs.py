"""Small deterministic environments for the tests: every space, every kind of info, every way to fail."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class PlainWordSpace(gymnasium.Space):
    """A space that only its author knows, with no equality of its own."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "".join(self.np_random.choice(list("abc"), int(self.np_random.integers(0, 5))))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and set(x) <= set("abc")


class WordSpace(PlainWordSpace):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordSpace)


ARRAY_SPACES: dict[str, spaces.Space] = {
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "box_scalar": spaces.Box(-1.0, 1.0, (), np.float32),
    "box_float64": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "box_float16": spaces.Box(0, 1, (4,), np.float16),
    "box_integers": spaces.Box(-2, 2, (3,), np.int64),
    "box_bounds": spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32)),
    "image": spaces.Box(0, 255, (8, 6, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "discrete_start": spaces.Discrete(3, start=-1),
    "discrete_int32": spaces.Discrete(4, dtype=np.int32),
    "discrete_huge": spaces.Discrete(10**9),
    "multi_discrete": spaces.MultiDiscrete([3, 4, 5]),
    "multi_discrete_2d": spaces.MultiDiscrete([[3, 4], [5, 6]], start=[[1, 0], [0, 2]]),
    "multi_binary": spaces.MultiBinary(6),
    "multi_binary_2d": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict(
        {
            "position": spaces.Box(0, 1, (2,), np.float32),
            "camera": spaces.Box(0, 255, (4, 4), np.uint8),
            "id": spaces.Discrete(9),
        }
    ),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float64))),
    "nested": spaces.Dict(
        {
            "outer": spaces.Tuple(
                (spaces.Dict({"b": spaces.MultiBinary(2), "a": spaces.Discrete(2)}), spaces.Discrete(7))
            ),
            "flag": spaces.Box(0, 1, (), np.int8),
        }
    ),
}

OBJECT_SPACES: dict[str, spaces.Space] = {
    "text": spaces.Text(6),
    "sequence": spaces.Sequence(spaces.Discrete(4)),
    "sequence_stacked": spaces.Sequence(spaces.Box(0, 1, (2,), np.float32), stack=True),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(3)),
    "one_of": spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float64))),
    "custom": WordSpace(),
    "dict_of_both": spaces.Dict(
        {
            "box": spaces.Box(0, 1, (3,), np.float32),
            "text": spaces.Text(4),
            "list": spaces.Sequence(spaces.Discrete(2)),
            "more": spaces.Tuple((spaces.Discrete(3), WordSpace())),
        }
    ),
    "tuple_of_both": spaces.Tuple((WordSpace(), spaces.Box(0, 255, (2, 2), np.uint8), spaces.Text(3))),
}

SPACES = {**ARRAY_SPACES, **OBJECT_SPACES}


class SpaceEnv(gymnasium.Env):
    """Observations are samples of its space; rewards, flags and infos are drawn too, all from the seed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30, "what": "SpaceEnv"}

    def __init__(self, observation: str = "box", action: str = "discrete", render_mode: str | None = None) -> None:
        self.observation_space = _copy(SPACES[observation])
        self.action_space = _copy(SPACES[action])
        self.render_mode = render_mode
        self.value = 7
        self.closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        elif not hasattr(self, "_seen"):
            self.observation_space.seed(0)
        self._seen = True
        return self.observation_space.sample(), self._info(options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        assert self.action_space.contains(action), (action, self.action_space)
        draw = self.np_random.random()
        reward = [1, 0.5, np.float32(0.25), np.float64(draw), np.int64(3), True][int(draw * 6)]
        terminated = [False, np.bool_(False), True][int(self.np_random.random() * 1.2 + (draw > 0.8))]
        truncated = bool(self.np_random.random() < 0.1)
        return (
            self.observation_space.sample(),
            reward,
            terminated,
            truncated,
            {**self._info(None), "action": _signature(action)},
        )

    def _info(self, options: dict[str, Any] | None) -> dict[str, Any]:
        draw = self.np_random.random()
        infos: list[dict[str, Any]] = [
            {},
            {"count": 3, "draw": draw, "flag": True},
            {"array": np.arange(3) * draw, "zero_d": np.array(1.5), "text": "hello"},
            {"nested": {"inner": {"a": 1}, "b": np.float32(2)}, "none": None, "list": [1, 2]},
            {"np_bool": np.bool_(True), "small": np.uint8(4)},
        ]
        info = infos[int(draw * len(infos))]
        return {**info, "options": options} if options else info

    def render(self) -> np.ndarray:
        return np.full((4, 4, 3), self.value, np.uint8)

    def double(self, number: int, plus: int = 0) -> int:
        return 2 * number + plus

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.closed = True


class CounterEnv(gymnasium.Env):
    """Counts its steps and resets; its episodes last `length` steps."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 3) -> None:
        self.length = length
        self.resets = 0
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = seed
        self.resets += 1
        self.steps = 0
        info = {"seed": seed} if seed is not None and seed < 2**63 else {}
        return self._observation(), info if options is None else {**info, "options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observation(), float(action), self.steps >= self.length, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.resets, self.steps], np.float64)


TOLD_OF_DEATH = r"(?s)worker 1 .*environment 1\) ended with .*SIGKILL.*the simulator says goodbye"
"""What is said of environment 1 where it has died(): worker, environment, signal, and last lines of output."""


def die() -> None:
    os.write(2, b"the simulator says goodbye\n")
    os.kill(os.getpid(), signal.SIGKILL)


class MortalEnv(CounterEnv):
    """Action 2 kills its process, with a last word."""

    def step(self, action: Any) -> Any:
        if action == 2:
            die()
        return super().step(action)


class GatedEnv(CounterEnv):
    """Its steps at action 1, and its calls of pass_gate(), end when the file `gate` is there."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.gate = gate

    def pass_gate(self) -> str:
        while not self.gate.exists():
            time.sleep(0.001)
        return "passed"

    def step(self, action: Any) -> Any:
        if action == 1:
            self.pass_gate()
        return super().step(action)


class TellingGatedEnv(GatedEnv):
    """Makes the file `begun` beside the gate when it is stepped."""

    def step(self, action: Any) -> Any:
        self.gate.with_name("begun").touch()
        return super().step(action)


class GatedResetEnv(GatedEnv):
    """All its resets but the first wait for the gate, too."""

    def reset(self, **arguments: Any) -> Any:
        if self.resets > 0:
            self.pass_gate()
        return super().reset(**arguments)


class TwoArgumentError(Exception):
    """Cannot be unpickled by the usual way: its constructor takes more than its text."""

    def __init__(self, first: str, second: int) -> None:
        super().__init__(f"{first}/{second}")


class FaultyEnv(CounterEnv):
    """Fails in one of its methods: raising, printing, dying, returning what it must not."""

    def __init__(
        self, init: Any = None, reset: Any = None, step: Any = None, observation: Any = None, result: Any = None
    ) -> None:
        super().__init__()
        self.raise_in_reset, self.raise_in_step = reset, step
        self.observation, self.result = observation, result
        if init is not None:
            raise init

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if self.raise_in_reset is not None:
            raise self.raise_in_reset
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        if self.raise_in_step is not None:
            raise self.raise_in_step
        observation, *rest = super().step(action)
        if self.result is not None:
            return self.result
        return (self.observation if self.observation is not None else observation, *rest)


def _copy(space: spaces.Space) -> spaces.Space:
    import copy

    return copy.deepcopy(space)


def _signature(action: Any) -> str:
    """Type, dtype and value of an action, nested ones too."""
    if isinstance(action, dict):
        return "{" + ", ".join(f"{key}: {_signature(value)}" for key, value in action.items()) + "}"
    if isinstance(action, tuple):
        return f"{type(action).__name__}(" + ", ".join(map(_signature, action)) + ")"
    return f"{type(action).__name__}:{getattr(action, 'dtype', '')}:{np.asarray(action).tolist()}"


class ShapedEnv(gymnasium.Env):
    """Has no spaces at all."""

    def __init__(self, size: int = 1, reward: Any = 1.0, observation: Any = None) -> None:
        self.size, self.reward, self.given = size, reward, observation

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        return self._observation(), self.reward, False, True, {}

    def _observation(self) -> Any:
        return np.ones((self.size, 2)) if self.given is None else self.given
