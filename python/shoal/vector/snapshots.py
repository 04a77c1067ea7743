"""Snapshots: where environments are, as something to come back to."""

from __future__ import annotations

import copy
import functools
import pickle
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.error import AlreadyPendingCallError, ResetNeeded
from gymnasium.utils import EzPickle

from shoal.ipc import cloudpickling
from shoal.process.error_report import first_line

__all__ = ["Keeper", "Snapshot", "Snapshots", "kind_of", "tell_end_of"]

_COPIED = b"shoal: an environment copied where it is: "  # no pickle begins so
_KEY_BYTES = 16


@dataclass(frozen=True)
class Snapshot:
    """The states of some environments: what `VectorEnv.snapshot` gives and `restore` takes.

    It can be restored any number of times, also in another vector environment of the same environments and options, and
    can be pickled. Where an environment cannot be pickled, only copied (`copy.deepcopy`), its copy stays in its worker
    process. Then the snapshot can be restored only in the vector environment that it was taken of, into environments of
    the same worker, while that process lives and this object is held: what is unpickled does not count. When it is let go
    the next snapshot(), restore() or clone() frees the copies.

    Attributes:
        ids: the numbers of the environments.
        states: as many bytes objects; opaque.
        options: those of make_vec() that the environments must share, by name.
    """

    ids: tuple[int, ...]
    states: tuple[bytes, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __copy__(self) -> Snapshot:
        return self  # nothing of it changes, and copies of environments are held by this very object

    def __deepcopy__(self, memo: dict[int, Any]) -> Snapshot:
        return self

    @property
    def copies(self) -> list[bytes]:
        """The keys of the copies that it holds. For Shoal's own use."""
        return [key for state in self.states if (key := _copys_key(state))]

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
    _snapshot_options: Mapping[str, Any] = {}  # what a Snapshot has as its options
    _engine: Any
    _was_reset: bool
    _check_idle: Callable[[str], None]
    _ask: Callable[[str, Sequence[tuple[Any, ...]]], None]
    _ranges: Callable[[], list[tuple[int, int]]]

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
        return self._taken(env_numbers(ids, self.num_envs, "snapshot(ids=…)"))

    def restore(self, snapshot: Snapshot, ids: Any = None) -> None:
        """Puts the environments of `snapshot` back to where they were, or puts `ids`, as many others, there.

        The same actions then give the same observations, rewards and ends, bit for bit, as far as the environments draw all
        chance from their own generators. What a fault took is restored, too: it need not be reset first.

        Raises:
            ValueError: for a snapshot of environments of another class, with other wrappers, spaces or options, for one whose
                copies are elsewhere or gone (see Snapshot), and for wrong numbers.
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
        _check_options(dict(snapshot.options), self._snapshot_options)
        self._put_back(snapshot, numbers)

    def clone(self, src: Any, dst: Any) -> None:
        """Makes environments `dst` the same as `src`: as many, or one for all of them."""
        sources, destinations = pairs(src, dst, self.num_envs)
        taken = self.snapshot(sources)
        self.restore(taken, destinations)

    def _taken(self, numbers: Sequence[int]) -> Snapshot:
        self._forget_dropped()
        states = tuple(self._engine.snapshot(numbers))
        taken = Snapshot(tuple(numbers), states, tuple(self._snapshot_options.items()))
        tell_end_of(taken, self._dropped)
        return taken

    def _put_back(self, snapshot: Snapshot, numbers: Sequence[int]) -> None:
        self._forget_dropped()
        self._engine.restore(numbers, list(snapshot.states))

    @functools.cached_property
    def _dropped(self) -> list[bytes]:
        """Keys of copies that no snapshot names any more. They come from wherever a snapshot ends, be it another thread."""
        return []

    def _forget_dropped(self) -> None:
        """Has the workers free them: a snapshot costs a worker memory for as long as somebody holds it."""
        if keys := self._dropped[:]:
            self._ask("forget", [(keys,)] * len(self._ranges()))
            del self._dropped[: len(keys)]

    def _check_ready(self, call: str) -> None:
        self._check_idle(call)
        if not self._was_reset:
            self._engine.require_open(call)
            raise ResetNeeded(f"Cannot call {call}() before reset() has been called.")
        if flying := getattr(self, "in_flight", 0):
            raise AlreadyPendingCallError(
                f"Cannot call {call}() while {flying} environments are in flight: recv() them first.", call
            )


class Keeper:
    """Turns the Python environments of one group into bytes and back."""

    def __init__(self) -> None:
        self._copies: dict[bytes, Any] = {}  # of environments that cannot be pickled

    def save(self, env: Any) -> bytes:
        """Raises TypeError with the reason where the environment can be neither pickled nor copied."""
        for layer in _layers(env):
            if _forgets(type(layer)):
                raise TypeError(
                    f"{type(layer).__name__} does not support snapshots: it is an EzPickle, which pickles and copies the "
                    "arguments it was made with, and not where it is. Give it a __getstate__ and __setstate__."
                )
        try:
            return cloudpickling.dumps(env)
        except Exception as unpicklable:
            try:
                twin = copy.deepcopy(env)
            except Exception as error:
                raise TypeError(
                    f"{type(_innermost(env)).__name__} does not support snapshots: it can be neither pickled "
                    f"({first_line(unpicklable)}) nor copied ({first_line(error)})"
                ) from error
        key = uuid.uuid4().bytes  # no other group's, whichever process that is in
        self._copies[key] = twin
        return _COPIED + key

    def load(self, state: bytes) -> Any:
        """A new environment."""
        if not state.startswith(_COPIED):
            return pickle.loads(state)
        twin = self._copies.get(state.removeprefix(_COPIED))
        if twin is None:
            raise ValueError(
                "the snapshot's environments cannot be pickled, and their copies are not here: it can only be restored in the "
                "vector environment that it was taken of, into environments of the same worker process, while that process "
                "lives and what snapshot(), or a collector's state_dict(), returned is held"
            )
        return copy.deepcopy(twin)

    def forget(self, keys: Iterable[bytes]) -> None:
        """Lets these copies go; those that are not here are in other processes."""
        for key in keys:
            self._copies.pop(key, None)


def tell_end_of(snapshot: Snapshot, dropped: list[bytes]) -> None:
    """When nobody holds `snapshot` any more, the keys of its copies come to `dropped`."""
    if keys := snapshot.copies:
        weakref.finalize(snapshot, dropped.extend, keys)


def _copys_key(state: bytes) -> bytes | None:
    """The key of the copy that an engine's state names: an environment's own is the last part of its state (env_state.h)."""
    own = state[-len(_COPIED) - _KEY_BYTES :]
    return own.removeprefix(_COPIED) if own.startswith(_COPIED) else None


def _check_options(taken: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for name, value in taken.items():
        if name in own and own[name] != value:
            raise ValueError(
                f"restore() got a snapshot of environments with {name}={value!r}; these have {name}={own[name]!r}"
            )


def kind_of(env: Any) -> tuple[str, ...]:
    """The classes of an environment's wrappers, outermost first, and its own. By name: a class that travelled by value is
    another object in each process."""
    return tuple(f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in _layers(env))


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
