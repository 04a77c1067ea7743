"""An environment in a worker, as Shoal's engine steps it for a vectorised environment of tianshou's kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from shoal.compat.action_rows import HEADER, ActionReader, action_bytes
from shoal.compat.observation_rows import NO_ROWS, NOTHING, nothing_of
from shoal.compat.tianshou.observations import row_of, row_space
from shoal.ipc import cloudpickling

__all__ = ["Rules", "Slot"]

_EXACT = 2**53
"""Integers up to it are floats without a loss."""


class Rules(NamedTuple):
    """Of all environments of one.

    Attributes:
        as_objects: observations never travel in rows: the environments differ.
        cast: see row_of().
    """

    as_objects: bool = False
    cast: bool = False


class Slot:
    """What the engine steps. Actions come as rows of bytes; what does not fit a row goes out in the info, whose keys are each
    there only where there is something to say:

        obs, reward: as the environment returned it, where it is not in the row.
        flags: (terminated, truncated), where they are no bools.
        dtype: of the rewards from this one on, as np.stack() would have it.
        info: as the environment returned it.
        broken: what a reset returned that is not Gymnasium's.
        seeded: (what the environment's seed() returned,).
        is_new: this was its first reset, which leaves the environment alone unless it was told otherwise.
    """

    metadata: dict[str, Any] = {}
    render_mode = None
    spec = None

    def __init__(self, factory: Callable[[], Any], index: int, rules: Rules) -> None:
        self._index = index
        self._cast = rules.cast
        self.env = env = factory()
        for name in ("reset", "step"):
            if not hasattr(env, name):
                raise TypeError(
                    f"environment {index}: its function must return a gymnasium.Env; {factory!r} returned "
                    f"{'None' if env is None else 'a ' + type(env).__name__}, which has no {name!r}"
                )
        space = None if rules.as_objects else row_space(getattr(env, "observation_space", None))
        self._space = space
        self._nothing = NOTHING if space is None else nothing_of(space)
        self.observation_space = NO_ROWS if space is None else space
        room = action_bytes(None if rules.as_objects else getattr(env, "action_space", None))
        self.action_space = spaces.Box(0, 255, (HEADER + room,), np.uint8)
        self._actions = ActionReader()
        array = space if isinstance(space, spaces.Box) else None
        self._dtype = None if array is None else array.dtype
        self._shape = None if array is None else array.shape
        self._reward_type: type | None = None  # of the last reward, where it was some kind of float
        self._reward_dtype = ""
        self._order: tuple[str, Any] = ("nothing", None)

    def step(self, row: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        returned = self.env.step(self._actions.read(row))
        if len(returned) != 5:
            raise ValueError(
                f"environment {self._index}: step() returned {len(returned)} values, Gymnasium's step() returns five: "
                "observation, reward, terminated, truncated, info"
            )
        obs, reward, terminated, truncated, info = returned
        # The way of nearly all steps.
        if (
            type(reward) is self._reward_type
            and type(obs) is np.ndarray
            and obs.dtype is self._dtype
            and obs.shape == self._shape
            and type(terminated) is bool
            and type(truncated) is bool
            and type(info) is dict
            and not info
        ):
            return obs, float(reward), terminated, truncated, info
        said: dict[str, Any] = {}
        kept = self._kept(obs, said)
        value = self._valued(reward, said)
        if not isinstance(terminated, bool | np.bool_) or not isinstance(truncated, bool | np.bool_):
            said["flags"] = terminated, truncated
            terminated = truncated = False
        if info or type(info) is not dict:
            said["info"] = info
        return kept, value, bool(terminated), bool(truncated), said

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        (call, argument), self._order = self._order, ("reset", {})
        if call == "nothing":
            return self._nothing, {"is_new": True}
        if call == "seed":
            return self._nothing, {"seeded": (self._seeded(argument),)}
        returned = self.env.reset(**argument)
        is_gymnasiums = isinstance(returned, tuple | list) and len(returned) == 2 and isinstance(returned[1], dict)
        if not is_gymnasiums:
            return self._nothing, {"broken": returned}
        obs, info = returned
        said = {"info": info} if info else {}
        return self._kept(obs, said), said

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def tell(self, messages: dict[int, tuple[Any, ...]]) -> bytes | None:
        """The answer to this environment's message (a method's name without its underscore, and arguments), pickled. All
        environments of a worker get the messages of all."""
        if self._index not in messages:
            return None
        name, *arguments = messages[self._index]
        answer = getattr(self, f"_{name}")(*arguments)
        try:
            return cloudpickling.dumps(answer)
        except Exception as error:
            what = f"the attribute {arguments[0]!r}" if name == "get" else f"what {name}() returned"
            raise TypeError(
                f"environment {self._index}: {what} is a {type(answer).__name__} that cannot leave its worker process: "
                f"{error}. Ask for what you need of it"
            ) from error

    def _order_reset(self, call: str, argument: Any) -> None:
        """What the next reset is to be: "reset" with keyword arguments, or "seed" with one."""
        self._order = call, argument

    def _take_action(self, pickled: bytes) -> None:
        self._actions.set_apart(pickled)

    def _get(self, name: str) -> Any:
        try:
            return getattr(self.env, name)
        except AttributeError:
            pass
        try:
            return self.env.get_wrapper_attr(name)
        except AttributeError:
            return None

    def _set(self, name: str, value: Any) -> None:
        setattr(getattr(self.env, "unwrapped", self.env), name, value)

    def _render(self, arguments: dict[str, Any]) -> Any:
        return self.env.render(**arguments) if hasattr(self.env, "render") else None

    def _seeded(self, seed: Any) -> Any:
        if callable(getattr(self.env, "seed", None)):
            return self.env.seed(seed)
        if hasattr(self.env, "action_space"):
            self.env.action_space.seed(seed)
        self.env.reset(seed=seed)
        return None

    def _kept(self, obs: Any, said: dict[str, Any]) -> Any:
        """The row of an observation, which otherwise is said."""
        if type(obs) is int and self._shape == () and self._dtype == np.int64:
            return np.int64(obs)  # as np.stack() makes of them
        row = None if self._space is None else row_of(obs, self._space, self._cast)
        if row is None:
            said["obs"] = obs
            return self._nothing
        return row

    def _valued(self, reward: Any, said: dict[str, Any]) -> float:
        """The reward as a float, where it comes back from it; otherwise it is said."""
        kind = type(reward)
        dtype = ""
        if kind is float or (isinstance(reward, np.floating) and reward.dtype.itemsize <= 8):
            dtype = "<f8" if kind is float else reward.dtype.str
        elif kind is int or isinstance(reward, np.integer):
            if -_EXACT <= reward <= _EXACT:
                dtype = "<i8" if kind is int else reward.dtype.str
        self._reward_type = kind if dtype[1:2] == "f" else None
        if not dtype:
            said["reward"] = reward
            return 0.0
        if dtype != self._reward_dtype:
            said["dtype"] = self._reward_dtype = dtype
        return float(reward)
