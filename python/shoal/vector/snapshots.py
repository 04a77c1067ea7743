"""Snapshots: where environments are, as something to come back to."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.error import AlreadyPendingCallError, ResetNeeded
from gymnasium.utils import EzPickle

__all__ = ["Keeper", "Snapshot", "Snapshots"]


@dataclass(frozen=True)
class Snapshot:
    """The states of some environments: what `VectorEnv.snapshot` gives and `restore` takes.

    It can be restored any number of times, also in another vector environment of the same environments and options, and
    can be pickled. Where an environment cannot be pickled, only copied, its state stays in its worker process: then the
    snapshot is good for as long as that process lives.

    Attributes:
        ids: the numbers of the environments.
        states: as many bytes objects; opaque.
    """

    ids: tuple[int, ...]
    states: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Snapshot(of {len(self)} environments, {sum(map(len, self.states)):,} bytes)"


def env_numbers(ids: Any, num_envs: int, what: str) -> list[int]:
    """`ids` as ints from 0 to num_envs - 1: all of them for None, one for an int."""
    if ids is None:
        return list(range(num_envs))
    numbers = [ids] if hasattr(ids, "__index__") else list(ids)
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"{what} takes numbers of environments, got {number!r}")
        if not 0 <= number < num_envs:
            raise ValueError(f"{what}: there is no environment {number}; there are {num_envs}, from 0 on")
    return [int(number) for number in numbers]


class Snapshots:
    """The part of a vector environment that comes back to where its environments were."""

    num_envs: int
    _engine: Any
    _was_reset: bool
    _check_idle: Callable[[str], None]

    def snapshot(self, ids: Any = None) -> Snapshot:
        """The states of the environments `ids` (None: all), with their random generators, episodes and pending resets.

        Raises:
            TypeError: for an environment that does not support it, with the reason. Native ones do; Python ones where they
                can be pickled or copied (`copy.deepcopy`).
            ValueError: for a number that is no environment's.
            RuntimeError: for an environment that was lost to a fault and has not begun an episode since, or was dropped.
            gymnasium.error.AlreadyPendingCallError: while a call is under way or environments are in flight.
        """
        self._check_ready("snapshot")
        numbers = env_numbers(ids, self.num_envs, "snapshot(ids=…)")
        return Snapshot(tuple(numbers), tuple(self._engine.snapshot(numbers)))

    def restore(self, snapshot: Snapshot, ids: Any = None) -> None:
        """Puts the environments of `snapshot` back to where they were, or puts `ids`, as many others, there.

        The same actions then give the same observations, rewards and ends, bit for bit, as far as the environments draw all
        chance from their own generators. What a fault took is restored, too: it need not be reset first.

        Raises:
            ValueError: for a snapshot of environments of another kind or with other spaces, and for wrong numbers.
            RuntimeError: for an environment that was dropped.
        """
        self._check_ready("restore")
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"restore() takes what snapshot() gave, got {snapshot!r}")
        numbers = env_numbers(snapshot.ids if ids is None else ids, self.num_envs, "restore(ids=…)")
        if len(numbers) != len(snapshot):
            raise ValueError(f"restore() got a snapshot of {len(snapshot)} environments for {len(numbers)}")
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"restore() got an environment twice: {numbers}")
        self._engine.restore(numbers, list(snapshot.states))

    def clone(self, src: Any, dst: Any) -> None:
        """Makes environments `dst` the same as `src`: as many, or one for all of them."""
        sources, destinations = pairs(src, dst, self.num_envs)
        taken = self.snapshot(sources)
        self.restore(taken, destinations)

    def _check_ready(self, call: str) -> None:
        self._check_idle(call)
        if not self._was_reset:
            raise ResetNeeded(f"Cannot call {call}() before reset() has been called.")
        if flying := getattr(self, "in_flight", 0):
            raise AlreadyPendingCallError(
                f"Cannot call {call}() while {flying} environments are in flight: recv() them first.", call
            )


class Keeper:
    """Turns the Python environments of one process into bytes and back."""

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}  # of environments that cannot be pickled
        self._numbers = itertools.count()

    def save(self, env: Any) -> bytes:
        """Raises TypeError with the reason where the environment can be neither pickled nor copied."""
        for layer in _layers(env):
            if _forgets(type(layer)):
                raise TypeError(
                    f"{type(layer).__name__} does not support snapshots: it is an EzPickle, which pickles and copies the "
                    "arguments it was made with, and not where it is. Give it a __getstate__ and __setstate__."
                )
        try:
            return pickle.dumps(("pickled", cloudpickle.dumps(env)))
        except Exception as unpicklable:
            try:
                twin = copy.deepcopy(env)
            except Exception as error:
                raise TypeError(
                    f"{type(_innermost(env)).__name__} does not support snapshots: it can be neither pickled "
                    f"({_first_line(unpicklable)}) nor copied ({_first_line(error)})"
                ) from error
        number = next(self._numbers)
        self._copies[number] = twin
        return pickle.dumps(("kept", (os.getpid(), number)))

    def load(self, state: bytes) -> Any:
        """A new environment."""
        kind, value = pickle.loads(state)
        if kind == "pickled":
            return pickle.loads(value)
        process, number = value
        if process != os.getpid() or number not in self._copies:
            raise ValueError(
                f"the snapshot lies in process {process}, where its environments, which cannot be pickled, were copied: "
                "it can only be restored there, into environments of the same worker"
            )
        return copy.deepcopy(self._copies[number])


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers, outermost first, and the environment itself."""
    while True:
        yield env
        if not isinstance(env, gymnasium.Wrapper):
            return
        env = env.env


def _innermost(env: Any) -> Any:
    return [*_layers(env)][-1]


def _forgets(kind: type) -> bool:
    return issubclass(kind, EzPickle) and kind.__getstate__ is EzPickle.__getstate__


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def pairs(src: Any, dst: Any, num_envs: int) -> tuple[list[int], list[int]]:
    """The numbers that clone(src, dst) is about: one source for each destination."""
    sources: Sequence[int] = env_numbers(src, num_envs, "clone(src=…)")
    destinations = env_numbers(dst, num_envs, "clone(dst=…)")
    if len(sources) == 1:
        sources = [*sources] * len(destinations)
    if len(sources) != len(destinations):
        raise ValueError(
            f"clone() got {len(sources)} environments to copy and {len(destinations)} to copy them to: give as many, or "
            "one to copy to all"
        )
    return list(sources), destinations
