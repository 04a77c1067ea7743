"""What a run of the benchmarks found, as values."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from shoal.bench.workloads import WORKLOADS

__all__ = ["BenchResult", "Comparison", "Measurement", "Spread"]


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, and how far they reach."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Measurement:
    """One contestant at one workload: environment steps per second, one rate a round.

    Attributes:
        error: why there are no rates.
        num_workers: what contestants that share workers among environments were given.
        settings: what was tried out and found the fastest.
    """

    workload: str
    num_envs: int
    contestant: str
    rates: list[float] = field(default_factory=list)
    error: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    num_workers: int = 0

    @property
    def rate(self) -> Spread:
        return Spread.of(self.rates)


@dataclass(frozen=True)
class Comparison:
    """How many times as fast `subject` was as `peer`: the quotients of the rates of the same round."""

    workload: str
    num_envs: int
    subject: str
    peer: str
    ratio: Spread


@dataclass(frozen=True)
class BenchResult:
    """Everything that was measured, and under which circumstances."""

    measurements: list[Measurement]
    num_workers: int
    rounds: int
    seconds: float
    machine: dict[str, Any]
    versions: dict[str, dict[str, str]]  # by contestant
    notes: list[str] = field(default_factory=list)
    beside: int = 0  # processes that computed meanwhile

    def measurement(self, workload: str, num_envs: int, contestant: str) -> Measurement | None:
        """None when this was not measured."""
        for m in self.measurements:
            if (m.workload, m.num_envs, m.contestant) == (workload, num_envs, contestant):
                return m
        return None

    def compare(self, workload: str, num_envs: int, subject: str, peer: str) -> Comparison | None:
        """None when one of the two was not measured."""
        own, other = (self.measurement(workload, num_envs, name) for name in (subject, peer))
        if own is None or other is None or not own.rates or not other.rates:
            return None
        ratios = [mine / theirs for mine, theirs in zip(own.rates, other.rates, strict=True)]
        return Comparison(workload, num_envs, subject, peer, Spread.of(ratios))

    def subject(self, workload: str, num_envs: int) -> str | None:
        """Whom the others are compared with there; None when none of those was measured."""
        for name in WORKLOADS[workload].subjects:
            m = self.measurement(workload, num_envs, name)
            if m is not None and m.rates:
                return name
        return None

    def comparisons(self) -> list[Comparison]:
        """The subject of each workload against every other contestant of the same workload and number of environments."""
        found = []
        for m in self.measurements:
            subject = self.subject(m.workload, m.num_envs)
            if subject is not None and m.contestant != subject:
                comparison = self.compare(m.workload, m.num_envs, subject, m.contestant)
                found += [] if comparison is None else [comparison]
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON would have it: rates in steps per second, ratios of a workload's subject to the others."""
        return {
            "num_workers": self.num_workers,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "beside": self.beside,
            "machine": self.machine,
            "versions": self.versions,
            "notes": self.notes,
            "rates": [
                {
                    "workload": m.workload,
                    "num_envs": m.num_envs,
                    "contestant": m.contestant,
                    "num_workers": m.num_workers,
                    "settings": m.settings,
                    **(vars(m.rate) if m.rates else {"error": m.error}),
                }
                for m in self.measurements
            ],
            "ratios": [
                {
                    "workload": c.workload,
                    "num_envs": c.num_envs,
                    "subject": c.subject,
                    "peer": c.peer,
                    **vars(c.ratio),
                }
                for c in self.comparisons()
            ],
        }
