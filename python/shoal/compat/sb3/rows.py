"""The engine under a SubprocVecEnv: rows of arrays, and what environments said as they said it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.error import ClosedEnvironmentError

from shoal import _core
from shoal.compat.closing import WarnsAtClose
from shoal.ipc.pickling import dumps
from shoal.vector.faults import Fault
from shoal.vector.infos import Entry
from shoal.vector.seeding import LastSeeds, Seeds
from shoal.vector.vector_env import VectorEnv

__all__ = ["Rows", "Said"]

_CLOSE_TIMEOUT = 60.0
"""Seconds for environments to close; the peer waits for ever."""

_ASKED_BY = {"has": "has_attr", "get": "get_attr", "set": "set_attr", "call_method": "env_method"}
_ASKED_BY["is_wrapped"] = "env_is_wrapped"
"""What callers know the methods of a SlotGroup by."""


class Said(NamedTuple):
    """What came with a reset or step beside its arrays. Nothing in it belongs to anybody else.

    Attributes:
        infos: (row, whether of an episode's last step, info) of those that are not empty, in the order of the rows.
        finals: last observations of the episodes that ended, by row.
        faults: a `shoal.Fault` by row, of the environments that were lost.
    """

    infos: Sequence[Entry]
    finals: dict[int, Any]
    faults: dict[int, Any]


class Rows(WarnsAtClose, VectorEnv):
    """A VectorEnv in same-step mode whose infos are not batched: `Said`, or `{}` where there is nothing to say.

    A call that Ctrl-C has left under way is waited for by the next one, which drops what comes of it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spec = None  # factories do not say how the whole could be made again
        self._was_reset = True  # or not: the environments say whether they may be stepped before
        self._last_seeds = LastSeeds(self.num_envs)
        self._shares = super()._ranges()
        self._worker_of = [worker for worker, (lo, hi) in enumerate(self._shares) for _ in range(lo, hi)]

    @property
    def is_stepping(self) -> bool:
        return self._pending == "step"

    def _ranges(self) -> list[tuple[int, int]]:
        return self._shares

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{call}: this SubprocVecEnv is closed")

    def _check_idle(self, call: str) -> None:
        if not self.closed:
            self.finish_interrupted()
        super()._check_idle(call)

    def finish_interrupted(self, options: dict[str, Any] | None = None) -> None:
        """As a VectorEnv does; and an episode begins in the new environments that are in the places of lost ones."""
        if not self._interrupted or self._pending not in ("step", "reset"):
            super().finish_interrupted(options)
            return
        result: Any = self.step_wait() if self._pending == "step" else self.reset_wait()
        self._interrupted = False
        said = result[-1]
        while said and said.faults:
            said = self.renew(said.faults)[-1]

    def note_interrupt(self) -> None:
        """Ctrl-C has left whatever is under way."""
        self._interrupted = self._pending is not None

    def _infos(self, extra: int, batch: Any = None) -> Any:
        finals: dict[int, Any] = {}
        if extra & _core.EXTRA_FINAL:
            finals = {row: self._io.final_observation(row) for row in np.flatnonzero(self._io.has_final()).tolist()}
        faults = dict(self._engine.faults()) if extra & _core.EXTRA_FAULT else {}
        return Said(self._io.infos() if extra & _core.EXTRA_INFOS else (), finals, faults)

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        super().reset_async(seed, options)
        self._last_seeds.note(seed)

    def step_async(self, actions: Any) -> None:
        """As arrays where they are such of the action space's own dtype, else each as the caller gave it.

        Raises:
            ValueError: for another number of actions than of environments; nothing has been stepped then.
        """
        self._check_idle("step_async")
        try:
            self._begin_step(actions)
        except KeyboardInterrupt:
            self.note_interrupt()
            raise

    def _begin_step(self, actions: Any) -> None:
        if self._io.fits(actions):
            super().step_async(actions)
            return
        parts = list(actions)
        if len(parts) != self.num_envs:
            raise ValueError(f"step(): {len(parts)} actions for {self.num_envs} environments")
        self._step_async_whole(parts)

    def drop_step(self) -> None:
        """Waits for the step under way, if there is one, and forgets what came of it."""
        if self._pending is not None:
            try:
                self._finish_pending(None)
            except KeyboardInterrupt:
                self.note_interrupt()
                raise
            self._pending = None

    def renew(self, faults: Mapping[int, Fault]) -> tuple[Any, Any]:
        """Begins an episode in the new environments that are in the places of lost ones; the result of a reset."""
        mask = np.zeros(self.num_envs, np.uint8)
        mask[list(faults)] = 1
        self._io.reset_async(self._last_seeds.of_successors(faults), mask)
        self._pending = "reset"
        return self.reset_wait()

    def set_reset_options(self, options: Sequence[dict[str, Any]]) -> None:
        """For the next reset of all, one dict an environment."""
        self._engine.require_open("reset")
        self._ask("set_reset_options", [(list(options[lo:hi]),) for lo, hi in self._ranges()])

    def of_rows(self, rows: Sequence[int], method: str, *arguments: Any) -> list[Any]:
        """What `method` of a SlotGroup answers for each of `rows`; workers that have none of them are left alone."""
        asked_by = _ASKED_BY[method]
        self._check_idle(asked_by)
        self._engine.require_open(asked_by)
        at = [tuple(row - lo for row in rows if lo <= row < hi) for lo, hi in self._shares]
        packed: dict[tuple[int, ...], bytes] = {(): b""}  # workers of one environment each are asked the same
        for places in at:
            if places not in packed:
                packed[places] = dumps((method, (places, *arguments)), f"{asked_by}()")
        answers = self._request([packed[places] for places in at])
        left = [iter(pickle.loads(answer) if answer else ()) for answer in answers]
        return [next(left[self._worker_of[row]]) for row in rows]

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        limit = _CLOSE_TIMEOUT if timeout is None else timeout
        if self._pending is not None and not terminate:
            terminate = not self._finish_pending(limit)
        self._pending = None
        super().close_extras(timeout=limit, terminate=terminate)
