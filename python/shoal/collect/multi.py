"""Several collectors, each a process: mode="multi_sync" and mode="multi_async"."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal import _core
from shoal.collect import worker
from shoal.collect.actors import only_model
from shoal.collect.processes import Processes
from shoal.collect.source import Raw, Source, given_outputs
from shoal.collect.station import Counts, Setup, check_rows
from shoal.serve.face import ServiceFace
from shoal.serve.structure import tree_map

__all__ = ["Multi", "MultiAsync", "MultiSync"]


class Multi(Source):
    """What both modes have in common. Weights may be updated while another thread, or what a signal's handler has interrupted,
    is in a call.

    Args:
        setups: of the collectors.
        policy: as the caller has it.
        more: of Processes.
    """

    state_parts: tuple[str, ...] = ("version", "collectors", "weights", "before", "lost", "pending")

    def __init__(self, setups: Sequence[Setup], policy: Any, **more: Any) -> None:
        self._setups = setups
        self._policy = policy
        sent = only_model(policy) if isinstance(policy, ServiceFace) else policy
        self.processes = Processes([_with_policy(setup, sent) for setup in setups], **more)
        hello = self.processes.hello
        self.single_observation_space = hello.observation_space
        self.single_action_space = hello.action_space
        self.wants_tensors = hello.wants_tensors
        self.version = hello.version
        self._store: _core.collect.WeightStore | None = None
        self._base = 0  # the version before the store's first
        self._layouts: dict[int, Any] = {}
        self._counts = [Counts(0, 0, 0, None, None)] * len(setups)
        self._before = list(self._counts)  # of processes that have ended
        self._generations = [0] * len(setups)  # of those whose counts these are
        self._outputs: frozenset[str] = frozenset()
        self._lost_to_preemption = 0

    def layout(self, envs: int) -> Any:
        if envs not in self._layouts:
            self._layouts[envs] = _core.collect.ExperienceLayout(
                self.single_observation_space, self.single_action_space, envs, self._setups[0].next_obs
            )
        return self._layouts[envs]

    def reset(self, seed: int | None) -> None:
        self.processes.recover()
        episodes = self.processes.episodes
        self.processes.reports(
            [self.processes.order(i, worker.Reset, seed, episodes[i]) for i in range(len(self._setups))]
        )
        self.processes.begin()

    def update_weights(self, weights: Mapping[str, Any] | None) -> int:
        if isinstance(self._policy, ServiceFace):
            if weights is None:
                raise TypeError("update_weights() of a collector whose policy is a ModelService takes the weights")
            self.version = self._policy.update(only_model(self._policy).name, weights)
            return self.version
        layout = self.processes.layout
        if layout is None:
            raise TypeError(
                f"update_weights(): the collectors are other processes, and the policy {self._policy!r} has no state_dict() and "
                "load_state_dict() by which new weights could reach them; give it these, or make it a torch module"
            )
        if weights is None:
            give = getattr(self._policy, "state_dict", None)
            if give is None:
                raise TypeError("update_weights() of a C++ network takes its weights: a dict from names to arrays")
            weights = give()
        flat = layout.pack(weights)
        self._publish(flat, self.version + 1)
        return self.version

    def _publish(self, flat: np.ndarray, version: int) -> None:
        if self._store is None:
            self._store = _core.collect.WeightStore.create(len(flat))
            self._base = version - 1
            self._store.publish(flat)
            self.processes.share(self._store, self._base)
        else:
            self._store.publish(flat)
        self.version = self._base + self._store.version

    def order(self, place: int, experience: Any, envs: int, column: int, steps: int, random: int) -> int:
        block = experience.block
        return self.processes.order(
            place,
            worker.Collect,
            (block.offset, block.serial),
            envs,
            column,
            steps,
            random,
            keeps=experience,
            rows=steps * self._setups[place].count,
        )

    def take(self, report: worker.Report) -> None:
        """What a report says of its collector."""
        place = report.place
        if report.generation != self._generations[place]:
            before = Counts.of_all([self._before[place], self._counts[place]])
            self._before[place], self._generations[place] = before, report.generation  # in a row, as Processes has it
        self._counts[place] = report.counts
        self._outputs |= frozenset(report.outputs)
        self._lost_to_preemption += report.missing
        if self._store is None:
            self.version = max(self.version, report.version)  # a service's own

    def arrays(self, experience: Any, envs: int) -> dict[str, Any]:
        return given_outputs(self.layout(envs).arrays(experience), self._outputs)

    def counts(self) -> Counts:
        return Counts.of_all([*self._before, *self._counts])

    @property
    def restarts(self) -> int:
        return sum(self.processes.restarts)

    @property
    def pids(self) -> Sequence[int]:
        return self.processes.pids

    def telemetry(self) -> dict[str, Any]:
        made = self.processes.rows_made()
        return {
            "envs": None,
            "lost_to_preemption": self._lost_to_preemption,
            "lost_with_collectors": self.processes.lost,
            "collectors": [
                {
                    "pid": pid,
                    "first_env": setup.first,
                    "num_envs": setup.count,
                    "frames": made[i],
                    "orders": self.processes.due(i),
                    "restarts": self.processes.restarts[i],
                }
                for i, (setup, pid) in enumerate(zip(self._setups, self.processes.pids, strict=True))
            ]
            if self.processes.pids
            else [],
        }

    def state(self) -> dict[str, Any]:
        self.pause()
        numbers = [self.processes.order(i, worker.SaveState) for i in range(len(self._setups))]
        parts = [report.state for report in self.processes.reports(numbers)]
        weights = None
        if self._store is not None:
            weights = np.empty(self._store.nbytes, np.uint8)
            self._store.read(weights)
        return {
            "version": self.version,
            "collectors": parts,
            "weights": weights,
            "before": list(self._before),
            "lost": (self._lost_to_preemption, self.processes.lost),
        }

    def load_state(self, state: Mapping[str, Any], seed: int, frames: int) -> None:
        parts = state["collectors"]
        if len(parts) != len(self._setups):
            raise ValueError(
                f"load a collector's state: it is of {len(parts)} collectors, and here are {len(self._setups)}: give "
                f"num_collectors={len(parts)}"
            )
        self.pause()
        self.processes.recover()
        try:
            numbers = [self.processes.order(i, worker.LoadState, part, seed) for i, part in enumerate(parts)]
            reports = self.processes.reports(numbers)
        except BaseException as error:
            # Some may have loaded it.
            self.processes.require_reset(error)
            if self._store is not None:
                self.processes.share(self._store, self._base)
            raise
        self.processes.share_no_more()
        self._store = None
        self._before = list(state["before"])
        for report in reports:
            self._counts[report.place] = report.counts
            self._generations[report.place] = report.generation
        self.version = state["version"]
        if state["weights"] is not None:
            self._publish(state["weights"], state["version"])
        self.processes.begin(any(group["engine"] is not None for part in parts for group in part["groups"]))
        self._lost_to_preemption, self.processes.lost = state["lost"]

    def close(self) -> None:
        self.processes.close()

    def end_soon(self) -> None:
        self.processes.is_ending = True


@dataclass
class _Round:
    """A batch that all collectors fill.

    Attributes:
        reports: of the orders that are done, by collector.
    """

    experience: Any
    steps: int
    random: int
    reports: dict[int, worker.Report] = field(default_factory=dict)


class MultiSync(Multi):
    """All collectors fill the columns of one experience; the batch is there when the last has.

    Who is interrupted while it waits (Ctrl-C) and asks again gets that batch: its round stays.
    """

    def __init__(self, setups: Sequence[Setup], policy: Any, threshold: float | None, **more: Any) -> None:
        super().__init__(setups, policy, **more)
        self._threshold = threshold
        self._round: _Round | None = None
        self._done: Raw | None = None

    def next(self, steps: int, random: int) -> Raw:
        if self._done is None:
            if self._round is None:
                self._round = _Round(self.layout(self._setups[0].total).allocate(steps), steps, random)
            self._finish(self._round)
        assert self._done is not None
        raw, self._done = self._done, None
        return raw

    def reset(self, seed: int | None) -> None:
        self._round = None  # a batch that is there stays
        super().reset(seed)

    def pause(self) -> None:
        if self._round is not None:
            self._finish(self._round)

    @property
    def pending(self) -> int:
        return int(self._done is not None)

    def state(self) -> dict[str, Any]:
        state = super().state()
        done = None if self._done is None else (tree_map(np.copy, self._done.arrays), self._done.states)
        return state | {"pending": done}

    def load_state(self, state: Mapping[str, Any], seed: int, frames: int) -> None:
        super().load_state(state, seed, frames)
        self._done = None if state["pending"] is None else Raw(*state["pending"])

    def _finish(self, round: _Round) -> None:
        total, everyone = self._setups[0].total, range(len(self._setups))
        # What interrupts this may come between an order and its number, or a report and its place in the round.
        ordered = self.processes.orders_of(round.experience)
        for place in everyone:
            if place not in ordered and place not in round.reports:
                self.order(place, round.experience, total, self._setups[place].first, round.steps, round.random)
        enough = len(everyone) if self._threshold is None else max(1, int(len(everyone) * self._threshold))
        while len(round.reports) < len(everyone):
            report, due = self.processes.next_report()
            if due.keeps is not round.experience:
                continue  # of a call that was interrupted
            round.reports[report.place] = report
            self.take(report)
            if len(round.reports) == enough < len(everyone):
                self.processes.stop(list(self.processes.orders_of(round.experience).values()))
        states = tree_map(self._joined, *(round.reports[place].answer for place in everyone))
        self._done = Raw(self.arrays(round.experience, total), states)
        self._round = None

    def _joined(self, *parts: Any) -> Any:
        """An array of a recurrent policy's state, of all environments."""
        if len(parts) == 1:
            return parts[0]
        for setup, part in zip(self._setups, parts, strict=True):
            check_rows(part, setup.count)
        return np.concatenate(parts)


class MultiAsync(Multi):
    """Every collector fills experience of its own, one after the other; batches come as they are ready.

    A collector has `ahead` orders at most: what it has collected, is collecting, and is to collect, and nobody has taken. So
    it never waits for a caller that keeps up, and never gets further ahead of one that does not.
    """

    state_parts = (*Multi.state_parts, "random", "pending_of")

    def __init__(
        self, setups: Sequence[Setup], policy: Any, frames: int, total: int | None, random: int, ahead: int, **more: Any
    ) -> None:
        super().__init__(setups, policy, **more)
        self._frames = frames
        self._total = total
        self._random = random
        self._ahead = ahead
        self._done: deque[tuple[int, Raw]] = deque()  # with their collectors
        self._paused = False

    def next(self, steps: int, random: int) -> Raw:
        self._order()
        while not self._done:
            if not self.processes.due_rows:
                raise RuntimeError("no batch is under way, and none is to come: all rows of total_frames= were ordered")
            self._take_next()
        _, raw = self._done.popleft()
        self._order(raw.rows)
        return raw

    def reset(self, seed: int | None) -> None:
        # What was ordered and is not there is forgotten; what is there stays.
        self._random += sum(
            due.order.random * self._setups[due.place].count
            for due in self.processes.all_due
            if isinstance(due.order, worker.Collect)
        )
        super().reset(seed)

    def pause(self) -> None:
        before, self._paused = self._paused, True
        try:
            while any(self.processes.due(place) for place in range(len(self._setups))):
                self._take_next()
        except BaseException:
            self._paused = before
            raise

    def resume(self) -> None:
        self._paused = False
        if self.processes.is_ready:
            self._order()

    @property
    def pending(self) -> int:
        return len(self._done)

    def telemetry(self) -> dict[str, Any]:
        return super().telemetry() | {"pending": self.pending}

    def state(self) -> dict[str, Any]:
        with self._as_before():
            state = super().state()
        copies = [Raw(tree_map(np.copy, raw.arrays), raw.states) for _, raw in self._done]
        return state | {
            "random": self._random,
            "pending": [tuple(raw) for raw in copies],
            "pending_of": [place for place, _ in self._done],
        }

    def load_state(self, state: Mapping[str, Any], seed: int, frames: int) -> None:
        ready = deque(Raw(*raw) for raw in state["pending"])
        had = frames + sum(raw.rows for raw in ready)
        if ready and self._total is not None and had > self._total:
            raise ValueError(
                f"load a collector's state: {frames} rows were handed out and {had - frames} more are ready, and this "
                f"collector has total_frames={self._total}: give it {had} or more"
            )
        with self._as_before():
            super().load_state(state, seed, frames)
        self._random = state["random"]
        self._done = deque(zip(state["pending_of"], ready, strict=True))

    @contextlib.contextmanager
    def _as_before(self) -> Iterator[None]:
        """Around what pauses the collectors for itself."""
        paused = self._paused
        try:
            yield
        finally:
            self._paused = paused

    def _order(self, handing: int = 0) -> None:
        """Gives every collector what it may have.

        Args:
            handing: rows that are on their way to the caller.
        """
        if self._paused:
            return
        left = None
        if self._total is not None:
            ready = sum(raw.rows for _, raw in self._done)
            left = self._total - self.handed - handing - ready - self.processes.due_rows
        for turn in range(self._ahead):
            for place, setup in enumerate(self._setups):
                if self.processes.due(place) + sum(of == place for of, _ in self._done) > turn:
                    continue
                rows = self._frames if left is None else min(self._frames, left)
                if rows <= 0:
                    return
                steps = rows // setup.count
                random = min(steps, -(-self._random // setup.count))
                self.order(place, self.layout(setup.count).allocate(steps), setup.count, 0, steps, random)
                self._random -= random * setup.count
                if left is not None:
                    left -= rows

    def _take_next(self) -> None:
        report, due = self.processes.next_report()
        if due.keeps is None:
            return  # of a call that was interrupted
        self.take(report)
        envs = self._setups[report.place].count
        self._done.append((report.place, Raw(self.arrays(due.keeps, envs), report.answer)))


def _with_policy(setup: Setup, policy: Any) -> Setup:
    from dataclasses import replace

    return replace(setup, policy=policy)
