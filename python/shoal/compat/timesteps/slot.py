"""An environment of DI-engine's interface in a worker, in a place where Shoal's engine steps one of Gymnasium's."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import signal
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from shoal.compat.action_rows import HEADER, ActionReader, action_bytes
from shoal.compat.observation_rows import NO_ROWS, NOTHING, nothing_of
from shoal.compat.timesteps.row_spaces import as_row, row_space
from shoal.ipc import cloudpickling

__all__ = ["Failure", "Manner", "ResetOrder", "Rules", "Slot"]

_FIELDS = ("obs", "reward", "done", "info")
_LARGEST_EXACT = 2**53
_NOTHING: dict[str, Any] = {}
_SPACES = ("observation_space", "action_space", "reward_space")


class Rules(NamedTuple):
    """How all environments of a manager are stepped.

    Attributes:
        as_objects: observations never travel in rows, for environments whose spaces differ.
        cast: see as_row().
        reset_inplace: a step that ends an episode resets, and returns the first observation of the next one.
        step_timeout, reset_timeout: seconds for the environment's own step and reset; None: no bound.
    """

    as_objects: bool = False
    cast: bool = False
    reset_inplace: bool = False
    step_timeout: float | None = None
    reset_timeout: float | None = None


class ResetOrder(NamedTuple):
    """How the next reset is done, and those after it until there is another order.

    Attributes:
        kwargs: of the environment's reset; None: none.
        attempts: how often it is tried.
        renew: what follows a failure: a new environment in the place of this one, else only its close().
        pause: seconds between two attempts.
        timeout: seconds for an attempt; None: no bound.
        seed: arguments of the environment's seed(), called once before the first attempt; None: it is not.
    """

    kwargs: dict[str, Any] | None = None
    attempts: int = 1
    renew: bool = False
    pause: float = 0.1
    timeout: float | None = None
    seed: tuple[Any, ...] | None = None


class Manner(NamedTuple):
    """Of what types an environment's results are, so that they cross as numbers. Said when it changes.

    Attributes:
        timestep: the type of its timesteps, where it is not DI-engine's own.
        reward: "array", "scalar" (NumPy's), "float" or "int".
        dtype, shape: of the reward.
    """

    timestep: type | None = None
    reward: str = "float"
    dtype: str = ""
    shape: tuple[int, ...] = ()


class Failure(NamedTuple):
    """What an environment raised.

    Attributes:
        error: pickled; b"" where that was not possible.
        text: its traceback, as Python prints it.
        call: "step" or "reset".
        attempts: how many there were.
    """

    error: bytes
    text: str
    call: str
    attempts: int = 1


class Slot:
    """What the engine steps: actions come as rows of bytes, and what does not fit a row goes out in the info.

    The keys of the info, each only where there is something to say:
        manner: a Manner, from this result on.
        obs, reward, done, info: as the environment returned them, where they are not in the rows.
        whole: all that the step returned, where it is no timestep of four fields.
        failure: a Failure, of a step or reset without a result.
    """

    metadata: dict[str, Any] = {}
    render_mode = None
    spec = None

    def __init__(self, factory: Callable[[], Any], index: int, rules: Rules) -> None:
        self._factory = factory
        self._index = index
        self._rules = rules
        self._order = ResetOrder(timeout=rules.reset_timeout)
        self._actions = ActionReader()
        self._manner = Manner()
        self._limit = rules.step_timeout
        self._read = self._actions.read
        self._type: type | None = None  # of the last timestep, and so on: of which self._manner tells
        self._reward_dtype: np.dtype[Any] | None = None
        self._reward_shape: tuple[int, ...] = ()
        self._take(factory())
        self.spaces = self._spaces()
        space = None if rules.as_objects else row_space(self.spaces[0])
        self._space = space
        self.observation_space = NO_ROWS if space is None else space
        self._nothing = NOTHING if space is None else nothing_of(space)
        is_box = isinstance(space, gymnasium.spaces.Box)
        self._obs_dtype = space.dtype if is_box else None  # type: ignore[union-attr]  # a Box has one
        self._obs_shape = space.shape if is_box else None  # type: ignore[union-attr]  # and the other
        room = action_bytes(None if rules.as_objects else self.spaces[1])
        self.action_space = gymnasium.spaces.Box(0, 255, (HEADER + room,), np.uint8)

    def step(self, row: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            action = self._read(row)
            timestep = self._step(action) if self._limit is None else _within(self._limit, "step", self._step, action)
        except Exception as error:
            return self._nothing, 0.0, False, False, {"failure": _failure(error, "step")}
        # The way of nearly all steps. Each of very many processes finds little in the CPU's caches: what is short is fast here.
        if type(timestep) is self._type:
            obs, reward, done, info = timestep
            if (
                done is False
                and type(info) is dict
                and not info
                and type(obs) is np.ndarray
                and obs.dtype is self._obs_dtype
                and obs.shape == self._obs_shape
                and type(reward) is np.ndarray
                and reward.dtype is self._reward_dtype
                and reward.shape == self._reward_shape
            ):
                return obs, reward.item(), False, False, _NOTHING
        return self._told(timestep)

    def _told(self, timestep: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step's result, for the engine."""
        if getattr(timestep, "_fields", None) != _FIELDS:
            return self._nothing, 0.0, False, False, {"whole": timestep}
        obs, reward, done, info = timestep
        if done and self._rules.reset_inplace and not _is_abnormal(info):
            try:
                obs = _within(self._rules.reset_timeout, "reset", self.env.reset)
            except Exception as error:
                return self._nothing, 0.0, False, False, {"failure": _failure(error, "step")}
        said: dict[str, Any] = {}
        kept = self._kept(obs, said)
        value, kind, dtype, shape = _number(reward)
        if kind is None:
            said["reward"] = reward
            kind, dtype, shape = self._manner[1:]
        if type(done) is not bool:
            said["done"] = done
        if info or type(info) is not dict:
            said["info"] = info
        known: type = type(timestep)
        own = None if known.__name__ == "BaseEnvTimestep" and known.__module__ == "ding.envs.env.base_env" else known
        manner = Manner(own, kind, dtype, shape)
        if manner != self._manner or self._type is None:
            said["manner"] = self._manner = manner
            self._type = known
            small = kind == "array" and np.dtype(dtype).kind == "f"  # of integers not all are a float's
            self._reward_dtype, self._reward_shape = (np.dtype(dtype), shape) if small else (None, ())
        return kept, value, done is True, False, said

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        order = self._order
        self._order = order._replace(seed=None)
        if order.seed is not None:
            self._seed(order.seed)
        failure = None
        for attempt in range(1, order.attempts + 1):
            try:
                if failure is not None and order.renew:
                    self._take(self._factory())
                obs = _within(order.timeout, "reset", functools.partial(self.env.reset, **(order.kwargs or {})))
                said: dict[str, Any] = {}
                return self._kept(obs, said), said
            except Exception as error:
                failure = _failure(error, "reset", attempt)
                with contextlib.suppress(Exception):  # the failure before it is what counts
                    self.env.close()
            time.sleep(order.pause)
        return self._nothing, {"failure": failure}

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    # What the caller asks for by messages: of all environments of a worker, each takes its own.

    def tell(self, messages: dict[int, tuple[Any, ...]]) -> bytes | None:
        """The answer to this environment's message, pickled: (True, value) or (False, Failure)."""
        if self._index not in messages:
            return None
        name, *arguments = messages[self._index]
        try:
            answer = True, getattr(self, f"_{name}")(*arguments)
            return cloudpickling.dumps(answer)
        except Exception as error:
            return cloudpickling.dumps((False, _failure(error, name)))

    def _take_order(self, order: ResetOrder) -> None:
        self._order = order

    def _take_action(self, data: bytes) -> None:
        self._actions.set_apart(data)

    def _say_spaces(self) -> tuple[Any, ...]:
        return tuple(_portable(space) for space in self.spaces)

    def _get(self, name: str) -> tuple[str, Any]:
        """("absent", None), ("method", None) or ("value", …)."""
        try:
            value = getattr(self.env, name)
        except AttributeError:
            return "absent", None
        if isinstance(value, types.MethodType):
            return "method", None
        return "value", value

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.env, name)(*args, **kwargs)

    def _apply(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function` of the environment."""
        return function(self.env, *args)

    def _take(self, env: Any) -> None:
        self.env, self._step = env, env.step

    def _kept(self, obs: Any, said: dict[str, Any]) -> Any:
        """The row of an observation, which otherwise is said."""
        row = None if self._space is None else as_row(obs, self._space, self._rules.cast)
        if row is None:
            said["obs"] = obs
            return self._nothing
        return row

    def _seed(self, arguments: tuple[Any, ...]) -> None:
        try:
            self.env.seed(*arguments)
        except Exception as error:
            warnings.warn(
                f"environment {self._index}: seed{arguments} raised {type(error).__name__}: {error}; it goes on unseeded",
                stacklevel=2,
            )

    def _spaces(self) -> tuple[Any, ...]:
        """Its three spaces. Where they are there only after a reset they are another environment's: this one's first reset is the
        caller's."""
        try:
            return tuple(getattr(self.env, name) for name in _SPACES)
        except Exception:
            pass
        other = self._factory()
        try:
            other.reset()
            return tuple(getattr(other, name) for name in _SPACES)
        finally:
            other.close()


def _portable(space: Any) -> Any:
    """The space, or a copy without its generator, where that does not survive pickling: gym's does not with newer NumPy."""
    try:
        pickle.loads(cloudpickling.dumps(space))
    except Exception:
        space = copy.copy(space)
        space.__dict__["_np_random"] = None
        parts = space.__dict__.get("spaces")
        if isinstance(parts, dict):
            space.__dict__["spaces"] = type(parts)((key, _portable(part)) for key, part in parts.items())
        elif isinstance(parts, list | tuple):
            space.__dict__["spaces"] = type(parts)(_portable(part) for part in parts)
    return space


def _is_abnormal(info: Any) -> bool:
    return isinstance(info, dict) and bool(info.get("abnormal", False))


def _number(reward: Any) -> tuple[float, str | None, str, tuple[int, ...]]:
    """The reward as a float, and how it is made of it again; None where it is not, bit for bit."""
    kind = type(reward)
    if kind is np.ndarray and reward.size == 1 and reward.dtype.kind in "iuf" and reward.dtype.itemsize <= 8:
        value = reward.item()
        if -_LARGEST_EXACT <= value <= _LARGEST_EXACT or reward.dtype.kind == "f":
            return float(value), "array", reward.dtype.str, reward.shape
    elif kind is float:
        return reward, "float", "", ()
    elif kind is int and -_LARGEST_EXACT <= reward <= _LARGEST_EXACT:
        return float(reward), "int", "", ()
    elif isinstance(reward, np.floating) and reward.dtype.itemsize <= 8:
        return float(reward), "scalar", reward.dtype.str, ()
    return 0.0, None, "", ()


def _failure(error: BaseException, call: str, attempts: int = 1) -> Failure:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        data = cloudpickling.dumps(error)
        pickle.loads(data)  # an exception with arguments of its own may not come back
    except Exception:
        data = b""
    return Failure(data, text, call, attempts)


def _within(seconds: float | None, call: str, function: Callable[..., Any], *args: Any) -> Any:
    """What `function` returns. It gets a TimeoutError where it takes longer: in Python code, at its next line."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        return function(*args)

    def too_late(*_: object) -> None:
        raise TimeoutError(f"{call}() took longer than its timeout of {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return function(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
