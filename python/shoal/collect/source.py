"""Where a Collector's batches come from, whatever its mode."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shoal import _core
from shoal.collect.actors import NetworkActor
from shoal.collect.answers import OUTPUTS
from shoal.collect.station import Counts, Rows, Setup, Station
from shoal.process.error_report import first_line

__all__ = ["InProcess", "Raw", "Source"]


class Raw(NamedTuple):
    """A batch as it was collected.

    Attributes:
        arrays: by name, `[steps, envs, …]`.
        states: of a recurrent policy, `state` at its beginning and `next_state` at its end.
    """

    arrays: dict[str, Any]
    states: Any = None

    @property
    def rows(self) -> int:
        return int(self.arrays["reward"].size)


class Source(ABC):
    """Collects. Threads: one at a time.

    Attributes:
        single_observation_space, single_action_space: of one environment.
        wants_tensors: whether batches are torch tensors by default.
        version: of the newest weights.
        state_parts: what state() has, at least.
        handed: rows that the caller was given so far; whoever hands them out says so before next() and resume().
    """

    single_observation_space: Any
    single_action_space: Any
    wants_tensors: bool
    version: int = 0
    handed: int = 0
    state_parts: tuple[str, ...] = ()

    @abstractmethod
    def next(self, steps: int, random: int) -> Raw:
        """A batch of `steps` steps of every environment it is of; `random` of them, the first ones, have samples of the
        action space as actions."""

    @abstractmethod
    def reset(self, seed: int | None) -> None:
        """Environment i begins anew with seed + i. After a failure it makes the source usable again."""

    @abstractmethod
    def update_weights(self, weights: Mapping[str, Any] | None) -> int:
        """For batches to come. Returns their version."""

    def pause(self) -> None:  # noqa: B027  # in this process nothing is ever under way
        """Waits until nothing is under way."""

    def resume(self) -> None:  # noqa: B027  # likewise
        """Goes on."""

    @property
    def pending(self) -> int:
        """Batches that are there already."""
        return 0

    @property
    def restarts(self) -> int:
        """Of collectors in other processes."""
        return 0

    @property
    def pids(self) -> Sequence[int]:
        """Of collectors in other processes."""
        return ()

    @abstractmethod
    def counts(self) -> Counts:
        """Of all that was collected so far."""

    @abstractmethod
    def telemetry(self) -> dict[str, Any]:
        """What stats() has beyond the counts."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What load_state() continues from."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any], seed: int, frames: int) -> None:
        """Goes on from `state`; `seed` is what reset() takes, and `frames` rows were handed out before."""

    @abstractmethod
    def close(self) -> None:
        """Ends what collects. More than once is fine."""

    @abstractmethod
    def end_soon(self) -> None:
        """Within a call, or in another thread meanwhile: that call ends, with a RuntimeError where it can."""

    @property
    def takes_weights_any_time(self) -> bool:
        """Whether update_weights() may come while a call is under way."""
        return True

    def leave_to_parent(self) -> None:  # noqa: B027  # what is in other processes lets a forked child's copies end
        """In a forked child: the end of this copy ends nothing of the parent's."""


def given_outputs(arrays: dict[str, Any], outputs: frozenset[str]) -> dict[str, Any]:
    """Without those of log_prob and value that are not among `outputs`."""
    return {name: value for name, value in arrays.items() if name not in OUTPUTS or name in outputs}


@contextlib.contextmanager
def _saying_what_waits() -> Iterator[None]:
    """What the engine says of a late step is for those who wait themselves."""
    try:
        yield
    except TimeoutError as error:
        text = str(error)
        told = text.replace("wait for it again, or close()", "reset() waits for it, and begins anew; or close()")
        if told == text:
            raise
        raise TimeoutError(told) from None


class InProcess(Source):
    """One station, in this process: mode="sync"."""

    state_parts = ("version", "groups")

    def __init__(self, setup: Setup) -> None:
        self._station = Station(setup)
        self._broken: str | None = None  # why only a reset() helps
        station = self._station
        self.single_observation_space = station.single_observation_space
        self.single_action_space = station.single_action_space
        self.wants_tensors = station.wants_tensors
        try:
            self._layout = _core.collect.ExperienceLayout(
                station.single_observation_space, station.single_action_space, setup.count, setup.next_obs
            )
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:  # type: ignore[override]  # a service's own changes while it is asked
        return self._station.version

    def next(self, steps: int, random: int) -> Raw:
        self._require_whole()
        experience = self._layout.allocate(steps)
        arrays = self._layout.arrays(experience)
        with _saying_what_waits():
            self._station.collect(arrays, Rows(experience, 0, 0, steps, random))
        return Raw(given_outputs(arrays, self._station.outputs), self._station.states())

    def reset(self, seed: int | None) -> None:
        with _saying_what_waits():
            self._station.reset(seed)
        self._broken = None

    def _require_whole(self) -> None:
        if self._broken is not None:
            raise RuntimeError(f"a state could not be loaded ({self._broken}): call reset() first")

    def update_weights(self, weights: Mapping[str, Any] | None) -> int:
        return self._station.update_weights(weights)

    def counts(self) -> Counts:
        return self._station.counts()

    def telemetry(self) -> dict[str, Any]:
        stats = self._station.env_stats()
        return {"envs": stats[0] if len(stats) == 1 else stats, "collectors": []}

    def state(self) -> dict[str, Any]:
        self._require_whole()
        return self._station.state()

    def load_state(self, state: Mapping[str, Any], seed: int, frames: int) -> None:
        self._station.check_state(state)
        try:
            self._station.load_state(state, seed)
        except BaseException as error:
            self._broken = first_line(error)
            raise
        self._broken = None

    @property
    def takes_weights_any_time(self) -> bool:
        return not isinstance(self._station.actor, NetworkActor)  # it would be written to while it computes

    def close(self) -> None:
        self._station.close()

    def end_soon(self) -> None:
        self._station.end_soon()

    def leave_to_parent(self) -> None:
        self._station.leave_to_parent()
