"""What the time of a program that steps environments went into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal import _core

__all__ = ["Breakdown", "Part", "breakdown"]

_KINDS = {name: index for index, name in enumerate(_core.trace.SPANS)}
_WORK = (_KINDS["worker.step"], _KINDS["worker.reset"])
_WAITS = (_KINDS["wait"], _KINDS["wake"])
"""Whoever wakes a worker may lose its CPU to it, and get it back when the work is done."""
_OVERLAPPING = (_KINDS["step"], _KINDS["reset"])
_OWN = {"infer": "policy", "update": "update", "copy": "copy", "evaluate": "evaluation", "save": "checkpoints"}
"""Spans of the caller, by the parts that their own time belongs to."""

PARTS = ("env.step", "env.reset", "copy", "wake-up", "policy", "update", "evaluation", "checkpoints", "other")


class Part(NamedTuple):
    """A part of a program's time."""

    name: str
    seconds: float


class Breakdown(NamedTuple):
    """Where the time of the thread that steps the environments went: the parts are its whole time, each moment in one."""

    seconds: float
    steps: int
    """Calls of step(), each of all environments."""
    parts: list[Part]


def breakdown(processes: Sequence[dict[str, Any]], pid: int) -> Breakdown:
    """Adds up the spans of `pid` and of those that work for it.

    While the caller waits for its workers or wakes them, the time in which some worker is at work is that of its environments and of copying what
    they return, in the proportion that the workers spend on each; the rest is for waking each other. Of native
    environments all work counts as `env.step`.

    Args:
        processes: what was recorded (Listener.stop()).
        pid: whose time it is: the thread of it that steps environments.

    Raises:
        ValueError: it has stepped none.
    """
    own = next((process for process in processes if process["pid"] == pid), None)
    steps = None if own is None else own["span"] == _KINDS["step"]
    if own is None or steps is None or not steps.any():
        raise ValueError(f"process {pid} has stepped no environments in this time")
    callers = own["thread"][steps | (own["span"] == _KINDS["wait"])]
    caller = int(np.bincount(callers - callers.min()).argmax() + callers.min())
    mine = own["thread"] == caller
    start = own["start_ns"]
    end = start + own["duration_ns"]
    begin, over = int(start[mine].min()), int(end[mine].max())

    own_times, waits = _own_times(own["span"][mine], start[mine], end[mine])
    others = [_without(process, caller) for process in processes]
    at_work = _Covered([_intervals_of_work(*spans) for spans in others])
    waited = float(sum(waits[:, 1] - waits[:, 0]))
    worked = float(at_work.within(waits[:, 0], waits[:, 1]).sum()) if len(waits) else 0.0

    total = dict.fromkeys(PARTS, 0.0)
    for kind, part in _OWN.items():
        total[part] += own_times.get(_KINDS[kind], 0.0)
    here = sum(own_times.get(kind, 0.0) for kind in _WORK)  # of environments in this thread
    in_envs = {name: own_times.get(_KINDS[name], 0.0) for name in ("env.step", "env.reset")}
    if in_envs["env.step"] > 0:
        total["copy"] += here
    else:
        total["env.step"] += here
    for name, seconds in in_envs.items():
        total[name] += seconds
    for part, ratio in _proportions(others).items():
        total[part] += worked * ratio
    total["wake-up"] += max(0.0, waited - worked)
    total["other"] = max(0.0, (over - begin) - sum(total.values()))
    return Breakdown(
        (over - begin) * 1e-9,
        int(steps[mine].sum()),
        [Part(name, total[name] * 1e-9) for name in PARTS if total[name] > 0 or name == "other"],
    )


def _without(process: dict[str, Any], thread: int) -> tuple[Any, Any, Any]:
    """Kinds, starts and durations of the spans of the other threads."""
    away = process["thread"] != thread
    return process["span"][away], process["start_ns"][away], process["duration_ns"][away]


def _intervals_of_work(spans: Any, starts: Any, durations: Any) -> tuple[Any, Any]:
    work = np.isin(spans, _WORK)
    return starts[work], starts[work] + durations[work]


def _own_times(spans: Any, starts: Any, ends: Any) -> tuple[dict[int, float], Any]:
    """Of one thread, for each kind, the time in it and in nothing inside of it; and the intervals of waiting and
    waking, without what is inside of them."""
    order = [i for i in np.lexsort((-ends, starts)) if spans[i] not in _OVERLAPPING]
    own: dict[int, float] = {}
    waits: list[tuple[int, int]] = []
    open_: list[list[int]] = []  # kind, end, until where its own time is counted

    def count(span: list[int], until: int) -> None:
        kind, _, since = span
        if until > since:
            own[kind] = own.get(kind, 0.0) + (until - since)
            if kind in _WAITS:
                waits.append((since, until))
        span[2] = max(since, until)

    def close(before: int) -> None:
        while open_ and open_[-1][1] <= before:
            ended = open_.pop()
            count(ended, ended[1])
            if open_:
                open_[-1][2] = max(open_[-1][2], ended[1])

    for i in order:
        begin, end = int(starts[i]), int(ends[i])
        close(begin)
        if open_:
            count(open_[-1], begin)
            end = min(end, open_[-1][1])
        open_.append([int(spans[i]), end, begin])
    close(np.iinfo(np.int64).max)
    return own, np.array(waits, np.int64).reshape(-1, 2)


class _Covered:
    """The time in which one of many intervals is under way."""

    def __init__(self, intervals: Sequence[tuple[Any, Any]]) -> None:
        starts = np.concatenate([start for start, _ in intervals]) if intervals else np.zeros(0, np.int64)
        ends = np.concatenate([end for _, end in intervals]) if intervals else np.zeros(0, np.int64)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
        first = np.ones(len(starts), bool)
        first[1:] = starts[1:] > ends[:-1]
        last = np.append(first[1:], True) if len(starts) else first
        self._starts, self._ends = starts[first], ends[last]
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._starts)])

    def within(self, starts: Any, ends: Any) -> Any:
        """Of each of these intervals, how much."""
        return self._until(ends) - self._until(starts)

    def _until(self, moments: Any) -> Any:
        if not len(self._starts):
            return np.zeros(len(moments), np.int64)
        at = np.searchsorted(self._starts, moments, side="right")
        current = np.maximum(at - 1, 0)
        inside = np.minimum(moments, self._ends[current]) - self._starts[current]
        return np.where(at > 0, self._before[current] + inside, 0)


def _proportions(others: Sequence[tuple[Any, Any, Any]]) -> dict[str, float]:
    """Of the workers' time, how much is for what."""
    sums = dict.fromkeys(_KINDS, 0.0)
    for spans, _, durations in others:
        for name, kind in _KINDS.items():
            sums[name] += float(durations[spans == kind].sum())
    work = sums["worker.step"] + sums["worker.reset"]
    if work == 0:
        return {}
    if sums["env.step"] == 0:
        return {"env.step": sums["worker.step"] / work, "env.reset": sums["worker.reset"] / work}
    ratios = {name: min(1.0, sums[name] / work) for name in ("env.step", "env.reset")}
    return {**ratios, "copy": max(0.0, 1.0 - sum(ratios.values()))}
