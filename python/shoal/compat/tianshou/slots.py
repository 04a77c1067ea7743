"""Slots in worker processes: each is stepped and reset by itself, or all of them together."""

from __future__ import annotations

import functools
import pickle
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.compat.action_rows import packed_actions
from shoal.compat.closing import WarnsAtClose
from shoal.compat.interrupts import SettlesInterrupts
from shoal.compat.observation_rows import NO_ROWS
from shoal.compat.starting import preload_of, start
from shoal.compat.tianshou.slot import Rules, Slot
from shoal.errors import ForkRefused, SpacesDiffer
from shoal.ipc.pickling import dumps
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["Came", "Slots", "started"]

_CLOSE_TIMEOUT = 60.0
"""Seconds for environments to close; the peer waits for ever."""

_FLOAT = "<f8"

_WITHOUT_ROW = frozenset({"broken", "is_new", "seeded"})
"""What a Slot says of a reset whose row is no observation."""


class Came(NamedTuple):
    """What came of resets or steps.

    Attributes:
        rows: of the arrays; element k is environment `ids[k]`'s.
        said: Slot's infos, by environment; only of those that said something.
        faults: of environments that were lost, by environment; new ones are in their places, which nobody has reset.
    """

    ids: list[int]
    rows: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    said: dict[int, dict[str, Any]]
    faults: dict[int, Fault]


_AWAITED = "awaited step"
"""A step whose caller waits for it. Where the next call finds it under way, Ctrl-C has left it there; so it is with resets."""


class Slots(WarnsAtClose, SettlesInterrupts):
    """The engine, and what it brings as arrays of the environments' own.

    After Ctrl-C the next call waits for what it has left under way, and throws it away; steps that begin_steps() has begun go on.
    """

    def __init__(self, engine: Any, description: dict[str, Any], **common: Any) -> None:
        super().__init__(engine, description, whole=False, **common)
        self._width = int(self.single_action_space.shape[0])  # type: ignore[index]  # it is a Box
        self._in_rows = self.single_observation_space != NO_ROWS
        self._dtypes = [_FLOAT] * self.num_envs  # of the rewards
        self._last: dict[int, Any] = {}  # observations of those whose last one came as an object
        self._reward: Any = 0.0  # the last one that came as an object, whosever it was
        self._early: deque[Came] = deque()  # steps that ended while a reset was waited for
        self._shares = self._ranges()
        self._worker_of = [worker for worker, (lo, hi) in enumerate(self._shares) for _ in range(lo, hi)]
        self._everybody = list(range(self.num_envs))
        self._asked = self._everybody  # whom the last reset of all was for

    @property
    def processes(self) -> list[int]:
        """The process of every environment."""
        workers = self.stats()["workers"]
        return [workers[worker]["pid"] for worker in self._worker_of]

    def step_now(self, ids: list[int], actions: Any) -> Came:
        """Steps these environments, and waits for them. Nothing else is in flight."""
        self.settle()
        rows = self._packed(ids, actions)
        if ids != self._everybody:
            self._begin_some(ids, _AWAITED, lambda: self._io.send(rows, np.array(ids, np.int64)))
            return merged([self.next_step(None) for _ in ids], ids)
        self._begin_all("step", lambda: self._io.step_async(rows))
        return self._read_all("step")

    def begin_steps(self, ids: list[int], actions: Any) -> None:
        """Begins a step of each of these environments, none of which is in flight."""
        rows = self._packed(ids, actions)
        self._begin_some(ids, "step", lambda: self._io.send(rows, np.array(ids, np.int64)))

    def is_stepping(self, env_id: int) -> bool:
        """Whether begin_steps() has begun its step, which no next_step() has returned."""
        return self._calls.get(env_id) == "step" or any(env_id in came.ids for came in self._early)

    def next_step(self, timeout: float | None, wanted: int | None = None) -> Came:
        """The next environment whose step has ended, or the environment `wanted`.

        Raises:
            TimeoutError: none has in so many seconds.
        """
        for place, early in enumerate(self._early):
            if wanted is None or early.ids == [wanted]:
                del self._early[place]
                return early
        while True:
            came = self._receive(timeout)[1]
            if wanted is None or came.ids == [wanted]:
                return came
            self._early.append(came)

    def reset_now(self, ids: list[int], call: str = "reset", arguments: Mapping[int, Any] | None = None) -> Came:
        """Has the environments do what Slot's next reset can be, with an argument each, and waits for them; others may be
        in flight. Where one is lost meanwhile, or was before, it is done again with the new one."""
        self.settle()
        if arguments is not None:
            self._answers_of({i: ("order_reset", call, arguments[i]) for i in ids})
        came = self._reset_once(ids)
        again = [i for i in ids if i in came.faults or "is_new" in came.said.get(i, ())]
        return merged([came, self.reset_now(again, call, arguments)], ids) if again else came

    def take_places(self) -> None:
        """To step an environment that was never reset, or was by its seed() alone, is its own affair."""
        self._reset_once(self._everybody)

    def _reset_once(self, ids: list[int]) -> Came:
        mask = np.zeros(self.num_envs, np.uint8)
        mask[ids] = 1
        if self._calls:
            self._begin_some(ids, "reset", lambda: self._io.send_reset(None, mask))
            came: list[Came] = []
            while len(came) < len(ids):
                kind, one = self._receive(None)
                (came if kind == "reset" else self._early).append(one)
            return merged(came, ids)
        self._asked = ids
        self._begin_all("reset", lambda: self._io.reset_async(None, mask))
        whole = self._read_all("reset")
        return whole if ids == self._everybody else merged([whole], ids)

    def settle(self) -> None:
        super().settle()
        while any(call != "step" for call in self._calls.values()):
            call, came = self._receive(None)
            if call == "step":
                self._early.append(came)

    def _read_all(self, call: str) -> Came:
        if call == "step":
            observations, rewards, terminated, truncated, extra = self._wait(self._io.step_wait, None)
            return self._came(self._everybody, observations, rewards, terminated, truncated, extra)
        observations, extra = self._wait(self._io.reset_wait, None)
        self._was_reset = True
        flags = np.zeros(self.num_envs, np.bool_)
        rewards = np.zeros(self.num_envs)
        return self._came(self._everybody, observations, rewards, flags, flags, extra, self._asked)

    def ask(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What Slots answer, by environment: see Slot.tell(). Environments that are in flight answer when their worker is between two
        calls.

        Raises:
            RuntimeError: for environments that were lost, and are built again with their next reset.
            what an environment raised, the first of them.
        """
        answers = self._answers_of(messages)
        for i in messages:
            if i not in answers:
                raise RuntimeError(f"environment {i} was lost: reset it first, and a new one is built in its place")
        return answers

    def _answers_of(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """As ask(), without those of environments that were lost."""
        self.settle()
        workers = sorted({self._worker_of[i] for i in messages})
        packed = [b""] * self.num_workers
        for worker in workers:
            own = {i: message for i, message in messages.items() if self._worker_of[i] == worker}
            packed[worker] = dumps(("call", ("tell", (own,), {})), f"{next(iter(own.values()))[0]}()")
        if len(workers) == 1:
            replies = {workers[0]: self._engine.request(workers[0], packed[workers[0]])}
        else:
            replies = dict(enumerate(self._request(packed)))
        answers = {}
        for worker in workers:
            if replies[worker]:
                for i, answer in enumerate(pickle.loads(replies[worker]), self._shares[worker][0]):
                    if answer is not None:
                        answers[i] = pickle.loads(answer)
        return answers

    def observations(self, came: Came) -> list[Any]:
        """One an environment, as it returned it; arrays view `came.rows`."""
        if self._in_rows:
            rows = _singles(came.rows, len(came.ids))
        else:
            rows = [self._last.get(i) for i in came.ids]
        for place, i in enumerate(came.ids):
            if "obs" in came.said.get(i, ()):
                rows[place] = came.said[i]["obs"]
            elif i in came.faults and i in self._last:
                rows[place] = self._last[i]
        return rows

    def stacked_observations(self, came: Came) -> np.ndarray | None:
        """All observations as one array, where they came as one."""
        if isinstance(came.rows, np.ndarray) and self._in_rows:
            if not any("obs" in said for said in came.said.values()) and not came.faults.keys() & self._last.keys():
                return came.rows
        return None

    def rewards(self, came: Came) -> np.ndarray:
        """As np.stack() makes them of what the environments returned; of lost ones zeros, as many as others have."""
        dtypes = {self._dtypes[i] for i in came.ids}
        zeros: Any = np.zeros_like(self._reward) if came.faults and np.ndim(self._reward) else None
        if zeros is None and not any("reward" in said for said in came.said.values()):
            if dtypes == {_FLOAT}:
                return came.rewards
            if len(dtypes) == 1:
                return came.rewards.astype(dtypes.pop())
        values: list[Any] = []
        for place, i in enumerate(came.ids):
            if zeros is not None and i in came.faults:
                values.append(zeros)
                continue
            said = came.said.get(i, {})
            value = np.dtype(self._dtypes[i]).type(came.rewards[place])
            values.append(said.get("reward", value))
        return np.stack(values)

    def flags(self, came: Came) -> tuple[np.ndarray, np.ndarray]:
        """Terminated and truncated, as np.stack() makes them of what the environments returned."""
        if not any("flags" in said for said in came.said.values()):
            return came.terminated, came.truncated
        pairs = [
            came.said.get(i, {}).get("flags", (own, cut))
            for i, own, cut in zip(came.ids, came.terminated.tolist(), came.truncated.tolist(), strict=True)
        ]
        return np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])

    def infos(self, came: Came) -> list[Any]:
        if not came.said and not came.faults:
            return [{} for _ in came.ids]
        infos = [came.said[i].get("info", {}) if i in came.said else {} for i in came.ids]
        for place, i in enumerate(came.ids):
            if i in came.faults:
                infos[place] = {"fault": came.faults[i]}
        return infos

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        self._pending = None  # it may be closed in the middle of steps
        super().close_extras(timeout=_CLOSE_TIMEOUT if timeout is None else timeout, terminate=terminate)

    def _packed(self, ids: list[int], actions: Any) -> np.ndarray:
        rows, apart = packed_actions(actions, self._width)
        if apart:
            self._answers_of({ids[place]: ("take_action", pickled) for place, pickled in apart.items()})
        return rows

    def _receive(self, timeout: float | None) -> tuple[str, Came]:
        observations, rewards, terminated, truncated, ids, extra = self._io.recv(timeout)
        listed = ids.tolist()
        call = self._calls.pop(listed[0])
        return call, self._came(listed, observations, rewards, terminated, truncated, extra)

    def _came(
        self,
        ids: list[int],
        rows: Any,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        extra: int,
        asked: list[int] | None = None,
    ) -> Came:
        """`asked`: which of `ids` did something, where not all."""
        faults = {ids[slot]: fault for slot, fault in self._engine.faults()} if extra else {}
        said: dict[int, dict[str, Any]] = {}
        if extra:
            said = {ids[slot]: own for slot, message in self._io.infos() for own in _infos_of(message)}
        if self._last and self._in_rows:
            for i in ids if asked is None else asked:
                if i not in faults and _WITHOUT_ROW.isdisjoint(said.get(i, ())):
                    self._last.pop(i, None)
        for i, own in said.items():
            if "dtype" in own:
                self._dtypes[i] = own["dtype"]
            if "obs" in own:
                self._last[i] = own["obs"]
            if "reward" in own:
                self._reward = own["reward"]
        return Came(ids, rows, rewards, terminated, truncated, said, faults)


def merged(parts: Sequence[Came], ids: list[int] | None = None) -> Came:
    """One, of the environments `ids`, each in one of the parts or, where in several, as in the last of them. None for all, in
    the order in which they came."""
    places = {i: (part, k) for part in parts for k, i in enumerate(part.ids)}
    if ids is None:
        ids = [i for part in parts for i in part.ids]
    chosen = [places[i] for i in ids]
    return Came(
        list(ids),
        _gathered([(part.rows, k) for part, k in chosen]),
        np.array([part.rewards[k] for part, k in chosen]),
        np.array([part.terminated[k] for part, k in chosen]),
        np.array([part.truncated[k] for part, k in chosen]),
        {i: part.said[i] for i, (part, _) in zip(ids, chosen, strict=True) if i in part.said},
        {i: part.faults[i] for i, (part, _) in zip(ids, chosen, strict=True) if i in part.faults},
    )


def _gathered(rows: Sequence[tuple[Any, int]]) -> Any:
    first = rows[0][0]
    if isinstance(first, dict):
        return {key: _gathered([(row[key], k) for row, k in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(_gathered([(row[place], k) for row, k in rows]) for place in range(len(first)))
    return np.stack([row[k] for row, k in rows])


def _singles(rows: Any, count: int) -> list[Any]:
    """The observation in each row."""
    if isinstance(rows, dict):
        parts = {key: _singles(part, count) for key, part in rows.items()}
        return [{key: part[k] for key, part in parts.items()} for k in range(count)]
    if isinstance(rows, tuple):
        members = [_singles(part, count) for part in rows]
        return [tuple(member[k] for member in members) for k in range(count)]
    return list(rows)


def _infos_of(message: Any) -> Iterable[dict[str, Any]]:
    entries = pickle.loads(message) if isinstance(message, bytes) else message
    return [info for _, _, info in entries[0]]


def started(
    env_fns: Sequence[Callable[[], Any]],
    *,
    cast: bool,
    num_workers: int,
    context: str,
    faults: FaultPolicy,
    worker: WorkerOptions,
) -> Slots:
    """Starts the workers, and waits until all environments are built. Where their spaces differ they are started again, with
    observations as objects.

    Raises:
        TypeError: for functions that cannot be sent to a worker.
        what an environment raised while it was built.
    """
    rules = Rules(cast=cast)
    while True:
        try:
            return start(
                Slots,
                [functools.partial(Slot, fn, i, rules) for i, fn in enumerate(env_fns)],
                preload_of(env_fns, Slot.__module__),
                num_workers=num_workers,
                context=context,
                faults=faults,
                worker=worker,
            )
        except ForkRefused as refused:
            warnings.warn(f"context='fork': the workers start by a fork server: {refused}", stacklevel=4)
            context = "auto"
        except SpacesDiffer:
            rules = Rules(as_objects=True)
