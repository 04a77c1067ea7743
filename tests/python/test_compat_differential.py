"""shoal.compat.gymnasium beside its peer: the same calls, and every difference in what comes back, order of keys included."""

from __future__ import annotations

import collections
import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import shoal.compat.gymnasium as compat

PAIRS = {"sync": (SyncVectorEnv, compat.SyncVectorEnv), "async": (AsyncVectorEnv, compat.AsyncVectorEnv)}
NUM_ENVS = 3


class Tells(gymnasium.Env):
    """Ends after three steps; its infos tell of what it was given, in which order."""

    def __init__(self, ordered: bool) -> None:
        kind: Any = collections.OrderedDict if ordered else dict
        self.action_space = spaces.Dict(kind([("b", spaces.Discrete(3)), ("a", spaces.Box(-1, 1, (2,)))]))
        self.observation_space = spaces.Dict(kind([("z", spaces.Discrete(9)), ("y", spaces.Box(-9, 9, (2,)))]))
        self.label = "no label"
        self.steps = 0

    def observation(self) -> dict[str, Any]:
        return {"z": np.int64(self.steps), "y": np.full(2, self.steps, np.float32)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {"options": repr(options), "nested": {"steps": 0}}

    def step(self, action: dict[str, Any]) -> Any:
        self.steps += 1
        types = {key: (type(value).__name__, str(value.dtype)) for key, value in action.items()}
        return self.observation(), 1.0, self.steps >= 3, False, {"types": str(types), "steps": self.steps}


def plain(value: Any) -> Any:
    """With keys in their order, and types and dtypes that show."""
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    if isinstance(value, tuple | list):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        items = [plain(item) for item in value.ravel()] if value.dtype == object else value.tolist()
        return value.dtype.str, value.shape, items
    return repr(value)


class Tape:
    """What every call returned or raised, in words."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def __call__(self, name: str, function: Callable[[], Any]) -> None:
        try:
            self.entries.append((name, plain(function())))
        except Exception as error:
            self.entries.append((name, type(error).__name__, str(error)))


def played(kind: Any, mode: AutoresetMode, ordered: bool) -> list[Any]:
    asynchronous = "Async" in kind.__name__
    envs = kind([functools.partial(Tells, ordered)] * NUM_ENVS, autoreset_mode=mode)
    tape = Tape()
    tape("attributes", lambda: (repr(envs), envs.metadata, envs.render_mode, envs.spec, envs.num_envs))
    if asynchronous:
        tape("observations", lambda: envs.observations)
    tape("reset", lambda: envs.reset(seed=3, options={"x": 1}))
    envs.action_space.seed(1)
    for step in range(5):
        if mode is AutoresetMode.DISABLED and step == 3:
            tape("reset", lambda: envs.reset(options={"reset_mask": np.ones(NUM_ENVS, np.bool_)}))
        tape("step", lambda: envs.step(envs.action_space.sample()))
    given = {"reset_mask": np.array([True, False, True]), "x": 1}
    tape("reset of some", lambda: envs.reset(options=given))
    tape("options after it", lambda: given)
    for mask in ([1, 1, 1], np.array([True]), np.ones(NUM_ENVS, np.int64), np.zeros(NUM_ENVS, np.bool_)):
        given = {"reset_mask": mask}
        tape("wrong mask", functools.partial(envs.reset, options=given))
        tape("options after it", lambda given=given: given)  # type: ignore[misc]
    tape("wrong seeds", lambda: envs.reset(seed=[1, 2]))
    tape("set_attr of too few", lambda: envs.set_attr("label", ["a", "b"]))
    tape("set_attr", lambda: envs.set_attr("label", ["a", "b", "c"]))
    tape("get_attr", lambda: envs.get_attr("label"))
    if asynchronous:
        action = envs.action_space.sample()
        for name, begin, wait in (
            ("reset", lambda: envs.reset_async(), lambda: envs.reset_wait(timeout=60)),
            ("step", lambda: envs.step_async(action), lambda: envs.step_wait(timeout=60)),
            ("call", lambda: envs.call_async("label"), lambda: envs.call_wait(timeout=60)),
        ):
            tape(f"{name}_wait too early", wait)
            tape(f"{name}_async", begin)
            tape("state", lambda: envs._state.value)
            for other in (
                lambda: envs.reset_async(),
                lambda: envs.step_async(action),
                lambda: envs.call_async("label"),
            ):
                tape(f"another while {name} is pending", other)
            tape("set_attr while it is pending", lambda: envs.set_attr("label", 1))
            tape(f"{name}_wait", wait)
    else:
        tape("call of reset", lambda: envs.call("reset"))
    tape("close", envs.close)
    tape("close again", envs.close)
    return tape.entries


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_same_calls_give_the_same(pair: str, mode: AutoresetMode, ordered: bool) -> None:
    theirs, ours = (played(kind, mode, ordered) for kind in PAIRS[pair])
    for expected, found in zip(theirs, ours, strict=True):
        assert found == expected


def pickled(envs: Any) -> Any:
    return pickle.loads(pickle.dumps(envs))


def copied_and_played(kind: Any, mode: AutoresetMode, how: Callable[[Any], Any]) -> list[Any]:
    """What a copy and its original do, after steps in the middle of which episodes end."""
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=7)
    envs = kind([make] * NUM_ENVS, autoreset_mode=mode)
    if mode is not AutoresetMode.DISABLED:
        assert how(envs).num_envs == NUM_ENVS  # also before the first reset
    envs.reset(seed=1)
    envs.action_space.seed(5)
    tape = Tape()
    for _ in range(7):
        tape("step", lambda: envs.step(envs.action_space.sample()))
    twin = how(envs)
    assert type(twin) is kind and twin.envs[0].unwrapped is not envs.envs[0].unwrapped
    for one in (twin, envs):
        mask = np.array([True, mode is AutoresetMode.DISABLED, mode is AutoresetMode.DISABLED])
        tape("reset", functools.partial(one.reset, options={"reset_mask": mask}))
        for _ in range(6):
            tape("step", lambda one=one: one.step(one.action_space.sample()))  # type: ignore[misc]
        one.close()
    assert how(twin).closed
    return tape.entries


@pytest.mark.parametrize("how", [copy.deepcopy, pickled])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_copies_of_the_serial_class_go_on_as_the_peers(mode: AutoresetMode, how: Callable[[Any], Any]) -> None:
    theirs, ours = (copied_and_played(kind, mode, how) for kind in PAIRS["sync"])
    assert ours == theirs


def test_what_the_peer_cannot_pickle_ours_cannot_either() -> None:
    envs = compat.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(envs)
    assert copy.deepcopy(envs).num_envs == 1
    envs.close()
