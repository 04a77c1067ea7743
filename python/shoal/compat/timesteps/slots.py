"""Environments of DI-engine's interface in worker processes: each is stepped and reset by itself."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from shoal.compat.action_rows import packed_actions
from shoal.compat.closing import WarnsAtClose
from shoal.compat.interrupts import SettlesInterrupts
from shoal.compat.starting import preload_of, start
from shoal.compat.timesteps.slot import Failure, Manner, ResetOrder, Rules, Slot
from shoal.errors import ForkRefused, RemoteError, RemoteTraceback, SpacesDiffer
from shoal.ipc.pickling import dumps
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["Lost", "Slots", "Stepped", "error_of", "started"]

_CLOSE_TIMEOUT = 5.0
"""Seconds for the environments to close, as in DI-engine."""

_SMALL = 1024
"""Bytes of a row that may keep the array of all rows in memory."""


class Stepped(NamedTuple):
    """What a step gave: DI-engine's timestep, with the type that the environment's has, or None for DI-engine's own. In `whole` is
    what an environment returned that is no such timestep."""

    obs: Any
    reward: Any
    done: Any
    info: Any
    type: type | None = None
    whole: Any = None


class Lost(NamedTuple):
    """The environment was lost, with its worker, and a new one is in its place, which nobody has reset."""

    fault: Fault


class Slots(WarnsAtClose, SettlesInterrupts):
    """As many environments as Slots in the workers. What comes back of a step is a Stepped, of a reset an observation; of either
    a Failure or a Lost. A call of all that Ctrl-C has left under way is waited for by the next one, and what came of it dropped.

    Attributes:
        spaces: the first environment's observation, action and reward space, as they are.
    """

    def __init__(self, engine: Any, description: dict[str, Any], *, own_rows: bool, **common: Any) -> None:
        super().__init__(engine, description, whole=False, **common)
        space = self.single_observation_space
        small = isinstance(space, gymnasium.spaces.Box) and space.dtype.itemsize * int(np.prod(space.shape)) <= _SMALL
        self._shares_rows = small or not own_rows  # rows view one array, which is theirs
        self._alike: bool | None = False  # whether all have the same manner; None: that is not known
        self._bytes = int(self.single_action_space.shape[0])  # type: ignore[index]  # it is a Box
        self._manners = [Manner()] * self.num_envs
        self._told: list[Any] = [None] * self.num_envs
        shares = self._ranges()
        self._worker_of = [worker for worker, (lo, hi) in enumerate(shares) for _ in range(lo, hi)]
        self.spaces: tuple[Any, ...] = self.ask({0: ("say_spaces",)})[0]

    def send_steps(self, actions: Mapping[int, Any]) -> None:
        """Begins a step of each of these environments, none of which is in flight."""
        self.settle()
        ids = list(actions)
        rows = self._rows_of(ids, list(actions.values()))
        self._begin_some(ids, "step", lambda: self.send(rows, np.array(ids, np.int64)))

    def step_all(self, actions: Sequence[Any]) -> list[Any]:
        """Steps all environments, none of which is in flight, and waits for them."""
        self.settle()
        rows = self._rows_of(range(self.num_envs), actions)
        self._begin_all("step", lambda: self._io.step_async(rows))
        return self._read_all("step")

    def _read_all(self, call: str) -> list[Any]:
        observations, rewards, dones, _, extra = self._wait(self._io.step_wait, None)
        said = self._said() if extra else {}
        faults = dict(self._engine.faults()) if extra else {}
        ids = range(self.num_envs)
        return self._results(ids, dict.fromkeys(ids, call), observations, rewards, dones, said, faults)

    def send_resets(self, orders: Mapping[int, ResetOrder]) -> None:
        """Begins a reset of each of these environments, none of which is in flight."""
        self.settle()
        lasting = {i: order._replace(seed=None) for i, order in orders.items()}
        untold = {
            i: ("take_order", order)
            for i, order in orders.items()
            if order.seed is not None or not _same(self._told[i], lasting[i])
        }
        if untold:
            for i in untold:
                self._told[i] = None  # until it is known that they know
            self.ask(untold)
            for i in untold:
                self._told[i] = lasting[i]
        mask = np.zeros(self.num_envs, np.uint8)
        mask[list(orders)] = 1
        self._begin_some(orders, "reset", lambda: self._io.send_reset(None, mask))
        self._was_reset = True

    def receive(self, timeout: float | None = None) -> tuple[int, str, Any]:
        """The next environment that is ready, what it was asked for ("step" or "reset"), and what came of it.

        Raises:
            TimeoutError: nothing came in so many seconds.
        """
        observations, rewards, dones, _, ids, extra = self._io.recv(timeout)
        came = [int(ids[0])]
        said = self._said() if extra else {}
        faults = dict(self._engine.faults()) if extra else {}
        call = self._calls.pop(came[0])
        (result,) = self._results(came, {came[0]: call}, observations, rewards, dones, said, faults)
        return came[0], call, result

    @property
    def is_busy(self) -> bool:
        """Whether anything is in flight."""
        return bool(self._calls)

    @property
    def resets(self) -> int:
        """How many environments are being reset."""
        return sum(call == "reset" for call in self._calls.values())

    def call_of(self, env_id: int) -> str | None:
        """What environment `env_id` is doing: "step", "reset" or nothing."""
        return self._calls.get(env_id)

    def ask(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What Slot's methods answer, by environment; each message is a method's name, without its underscore, and arguments.
        Environments that are in flight answer when their worker is between two calls.

        Raises:
            what an environment raised, the first of them.
        """
        self.settle()
        packed = dict.fromkeys(range(self.num_workers), b"")
        for worker in {self._worker_of[i] for i in messages}:
            own = {i: message for i, message in messages.items() if self._worker_of[i] == worker}
            what = next(iter(own.values()))[0]
            packed[worker] = dumps(("call", ("tell", (own,), {})), f"{what}()")
        if len(messages) == 1:
            (worker,) = (worker for worker, message in packed.items() if message)
            replies = [self._engine.request(worker, packed[worker])]
        else:
            replies = self._request(list(packed.values()))
        given = [answer for reply in replies if reply for answer in pickle.loads(reply) if answer is not None]
        answers: dict[int, Any] = {}
        for i, answer in zip(sorted(messages), given, strict=True):
            is_well, value = pickle.loads(answer)
            if not is_well:
                raise error_of(value, i)
            answers[i] = value
        return answers

    def forget(self, env_id: int) -> None:
        """A new environment is in this place: it knows no order."""
        self._told[env_id] = None
        self._manners[env_id] = Manner()
        self._alike = None

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        self._pending = None  # DI-engine's managers are closed in the middle of steps
        super().close_extras(timeout=_CLOSE_TIMEOUT if timeout is None else timeout, terminate=terminate)

    def _rows_of(self, ids: Sequence[int], actions: Sequence[Any]) -> np.ndarray:
        rows, apart = packed_actions(actions, self._bytes)
        if apart:
            self.ask({ids[place]: ("take_action", data) for place, data in apart.items()})
        return rows

    def _said(self) -> dict[int, dict[str, Any]]:
        """By row."""
        said = {}
        for row, message in self._io.infos():
            entries = pickle.loads(message) if isinstance(message, bytes) else message
            for _, _, info in entries[0]:
                said[row] = info
        return said

    def _results(
        self,
        ids: Sequence[int],
        calls: Mapping[int, str],
        observations: Any,
        rewards: np.ndarray,
        dones: np.ndarray,
        said: Mapping[int, dict[str, Any]],
        faults: Mapping[int, Fault],
    ) -> list[Any]:
        if not said and not faults and type(ids) is range:  # a step of all
            manner = self._manners[0]
            if self._alike is None:
                self._alike = all(own == manner for own in self._manners)
            if self._alike and manner.reward == "array" and not isinstance(observations, dict):
                each = rewards.astype(manner.dtype).reshape(len(ids), *manner.shape)
                rows = observations if self._shares_rows else [row.copy() for row in observations]
                if each.ndim > 1 and observations.ndim > 1:  # else rows are no arrays
                    kind = manner.timestep
                    return [
                        Stepped(obs, reward, done, {}, kind)
                        for obs, reward, done in zip(rows, each, dones.tolist(), strict=True)
                    ]
        results: list[Any] = []
        values = rewards.tolist()
        ended = dones.tolist()
        arrays: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
        for row, i in enumerate(ids):
            if row in faults:
                self.forget(i)
                results.append(Lost(faults[row]))
                continue
            own = said.get(row)
            if own is not None:
                if "failure" in own:
                    results.append(own["failure"])
                    continue
                if "manner" in own:
                    self._manners[i] = own["manner"]
                    self._alike = None
            obs = own["obs"] if own is not None and "obs" in own else self._row(observations, row)
            if calls[i] == "reset":
                results.append(obs)
                continue
            if own is not None and "whole" in own:
                results.append(Stepped(None, None, None, None, whole=own["whole"]))
                continue
            manner = self._manners[i]
            if own is not None and "reward" in own:
                reward = own["reward"]
            elif manner.reward == "array":
                key = manner.dtype, manner.shape
                if key not in arrays:
                    arrays[key] = rewards.astype(manner.dtype).reshape(len(values), *manner.shape)
                reward = arrays[key][row] if manner.shape else arrays[key][row : row + 1].reshape(())
            else:
                reward = _reward(values[row], manner)
            if own is None:
                results.append(Stepped(obs, reward, ended[row], {}, manner.timestep))
            else:
                done, info = own.get("done", ended[row]), own.get("info", {})
                results.append(Stepped(obs, reward, done, info, manner.timestep))
        return results

    def _row(self, observations: Any, index: int) -> Any:
        if isinstance(observations, dict):
            return {key: self._row(part, index) for key, part in observations.items()}
        row = observations[index : index + 1].reshape(
            observations.shape[1:]
        )  # an array also where it has no dimensions
        return row if self._shares_rows and len(observations) > 1 else row.copy()


def started(
    env_fns: Sequence[Callable[[], Any]],
    rules: Rules,
    *,
    num_workers: int,
    context: str,
    faults: FaultPolicy,
    worker: WorkerOptions,
    own_rows: bool,
) -> Slots:
    """Starts the workers, and waits until all environments are built.

    Raises:
        TypeError: for what is no list of functions, and for functions that cannot be sent to a worker.
        what an environment raised while it was built.
    """
    while True:
        try:
            return start(
                functools.partial(Slots, own_rows=own_rows),
                [functools.partial(Slot, fn, i, rules) for i, fn in enumerate(env_fns)],
                _preload(env_fns),
                num_workers=num_workers,
                context=context,
                faults=faults,
                worker=worker,
            )
        except ForkRefused:  # DI-engine's default, which nobody may have asked for
            context = "auto"
        except SpacesDiffer:
            rules = rules._replace(as_objects=True)


def _preload(env_fns: Sequence[Callable[[], Any]]) -> list[str]:
    """Modules that the environments need. DI-engine, and torch with it, takes seconds to import: once is enough."""
    modules = preload_of(env_fns, Slot.__module__)
    if any(b"ding." in dumps(fn, "env_fn") for fn in env_fns[:1]):
        modules.append("ding.envs")
    return modules


def _same(told: ResetOrder | None, order: ResetOrder) -> bool:
    """Whether the worker needs not be told. Arguments are told again: who knows whether they have changed."""
    return not order.kwargs and told == order and (told.kwargs is None) == (order.kwargs is None)


def _reward(value: float, manner: Manner) -> Any:
    if manner.reward == "int":
        return int(value)
    if manner.reward == "scalar":
        return np.dtype(manner.dtype).type(value)
    return value


def error_of(failure: Failure, env_id: int) -> BaseException:
    """The exception of an environment, with a note that says where, and the worker's traceback as its cause."""
    times = f", {failure.attempts} times" if failure.attempts > 1 else ""
    where = f"environment {env_id}: {failure.call}(){times}"
    error: BaseException = (
        pickle.loads(failure.error) if failure.error else RemoteError(failure.text.strip().splitlines()[-1])
    )
    if hasattr(error, "add_note"):
        error.add_note(where)
    error.__cause__ = RemoteTraceback(f"{where}, in its worker:\n{failure.text}", failure.text, env_id)
    return error
