"""Actors of Ray that collect for a run, as `shoal collect` does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from shoal.compat.ray.resources import end_actors, workers_here
from shoal.errors import ConnectionLost, Error
from shoal.learn import Collected, collect
from shoal.vector import registrations

__all__ = ["CollectingActors"]

_WAIT = 60.0
"""Seconds for which a collector tries to find its learner again."""


class CollectingActor:
    """What runs in the actor."""

    def __init__(self, registered: bytes | None) -> None:
        """
        Args:
            registered: ids of environments that the learner's process knows, of shoal.vector.registrations.
        """
        if registered is not None:
            registrations.restore(registered)

    def collect(self, address: str, secret: str, where: dict[str, Any]) -> Collected:
        """As `shoal.learn.collect`, until the run ends. Ray calls it again in an actor that it has started again."""
        if where["num_workers"] is None:
            where = {**where, "num_workers": workers_here()}
        return collect(address, secret=secret, wait=_WAIT, **where)


class CollectingActors:
    """The actors that collect for one learner.

    Threads: one at a time.
    """

    def __init__(
        self, options: Sequence[Mapping[str, Any]], address: str, secret: str, where: Mapping[str, Any]
    ) -> None:
        """Asks Ray for them; they come to `address` when they are placed.

        Args:
            options: of Ray, for each.
            where: num_workers, backend and context of each.
        """
        self._call = (address, secret, dict(where))
        registered = registrations.take()
        remote = ray.remote(CollectingActor)
        self._actors = [remote.options(**each).remote(registered) for each in options]
        self._at_work = {self._begin(place): place for place in range(len(self._actors))}
        self._told: set[int] = set()  # collectors of which it was said that they do not find the learner
        self._is_over = False  # the learner has sent one away

    def _begin(self, place: int) -> Any:
        return self._actors[place].collect.remote(*self._call)

    def look(self) -> None:
        """What has become of them. One that Ray does not start again is a warning; one that has lost its learner begins anew, and
        one that does not find it is a warning, too.

        Raises:
            What the environments of one raised: those of the others would.
            Error: none is left.
        """
        done, _ = (
            ray.wait(list(self._at_work), num_returns=len(self._at_work), timeout=0) if self._at_work else ([], [])
        )
        for call in done:
            place = self._at_work.pop(call)
            try:
                ray.get(call)
                self._is_over = True
            except ActorUnavailableError:  # Ray starts it again, and was told not to repeat the call
                self._at_work[self._begin(place)] = place
            except RayActorError as error:
                warnings.warn(
                    f"collector {place} is gone, and Ray does not start it again: {error}", RuntimeWarning, stacklevel=4
                )
                if not self._at_work and not self._is_over:
                    raise Error(f"no collector is left: {error}") from error
            except RayTaskError as error:
                if not isinstance(error.cause, ConnectionLost | TimeoutError):
                    raise
                if isinstance(error.cause, TimeoutError) and place not in self._told:
                    self._told.add(place)
                    warnings.warn(
                        f"collector {place} does not find its learner, and goes on to look for it: {error.cause}. Where its node "
                        "cannot reach that address, give listen= one that it can",
                        RuntimeWarning,
                        stacklevel=4,
                    )
                self._at_work[self._begin(place)] = place

    def close(self) -> None:
        """Ends them, those that are not placed yet, too. Idempotent."""
        end_actors(self._actors, self._at_work)
        self._actors, self._at_work = [], {}
