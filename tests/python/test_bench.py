"""The benchmark suite: what it computes from its measurements, and that it measures. Speed itself is not tested here."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest
from rich.console import Console

import shoal.bench
from shoal.bench import BenchResult, Measurement
from shoal.bench.process import Contestant, ContestantFailed
from shoal.bench.report import Report
from shoal.bench.suite import peers_python


def result(*measurements: Measurement) -> BenchResult:
    return BenchResult(list(measurements), num_workers=2, rounds=3, seconds=1.0, machine={}, versions={})


def test_ratio_is_the_median_of_the_quotients_of_each_round():
    found = result(
        Measurement("noop", 8, "shoal-process", [100.0, 300.0, 200.0]),
        Measurement("noop", 8, "gymnasium-sync", [50.0, 100.0, 200.0]),
    )
    ratio = found.compare("noop", 8, "shoal-process", "gymnasium-sync").ratio
    assert (ratio.median, ratio.least, ratio.most) == (2.0, 1.0, 3.0)
    assert found.compare("noop", 8, "shoal-process", "sb3-dummy") is None
    assert found.compare("noop", 64, "shoal-process", "gymnasium-sync") is None


def test_a_contestant_that_failed_is_told_and_not_compared():
    found = result(
        Measurement("noop", 8, "shoal-process", [1.0]),
        Measurement("noop", 8, "gymnasium-sync", [], "ImportError: no such thing"),
    )
    assert found.comparisons() == []
    assert found.to_dict()["rates"][1] == {
        "workload": "noop",
        "num_envs": 8,
        "contestant": "gymnasium-sync",
        "error": "ImportError: no such thing",
    }
    text = io.StringIO()
    Report(Console(file=text, width=100)).table(found)
    assert "gymnasium-sync failed: ImportError: no such thing" in text.getvalue()


def test_table_shows_rates_and_ratios():
    found = result(
        Measurement("cartpole", 64, "shoal-process", [150_000.0, 149_000.0, 151_000.0]),
        Measurement("cartpole", 64, "plain-loops", [200_000.0, 200_000.0, 200_000.0]),
    )
    text = io.StringIO()
    Report(Console(file=text, width=100)).table(found)
    assert "150,000" in text.getvalue() and "149,000 - 151,000" in text.getvalue()
    assert "0.75" in text.getvalue()


def test_wrong_names_and_numbers_are_refused():
    with pytest.raises(ValueError, match="no workload 'atari'; choose from cartpole"):
        shoal.bench.run(workloads=["atari"])
    with pytest.raises(ValueError, match="no contestant 'ray'; choose from shoal-process"):
        shoal.bench.run(contestants=["ray"])
    for wrong in ({"num_envs": []}, {"num_envs": [0]}, {"rounds": 0}, {"seconds": 0}, {"num_workers": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            shoal.bench.run(**wrong)


@pytest.mark.parametrize("workload", ["cartpole", "noop", "image", "busy"])
def test_every_contestant_without_peers_is_measured(workload, monkeypatch):
    monkeypatch.setenv("SHOAL_PEERS_PYTHON", "/nowhere/python")
    monkeypatch.setattr("shoal.bench.suite.PACKAGES", "/nowhere/python")
    text = io.StringIO()
    found = shoal.bench.run([workload], num_envs=[3], num_workers=2, rounds=2, seconds=0.01, console=Console(file=text))
    names = [m.contestant for m in found.measurements]
    expected = [name for name in shoal.bench.CONTESTANTS if not name.startswith("sb3")]
    if workload != "cartpole":
        expected.remove("shoal-native")
    assert names == expected
    for m in found.measurements:
        assert m.error is None and len(m.rates) == 2 and min(m.rates) > 0, m
    assert "Stable-Baselines3 is not measured" in text.getvalue()
    assert found.notes and json.loads(json.dumps(found.to_dict()))["notes"] == found.notes
    assert {c.peer for c in found.comparisons()} == set(expected) - {"shoal-process"}


def test_peers_are_measured_where_they_are_installed():
    if peers_python() is None:
        pytest.skip("benchmarks/peers/setup has not been run")
    found = shoal.bench.run(
        ["noop"],
        [2],
        rounds=1,
        seconds=0.01,
        contestants=["sb3-dummy", "sb3-subproc"],
        console=Console(file=io.StringIO()),
    )
    assert [len(m.rates) for m in found.measurements] == [1, 1], found.measurements
    assert "stable_baselines3" in found.versions["sb3-dummy"]


def test_contestant_that_cannot_start_says_why_and_leaves_nothing():
    with pytest.raises(ContestantFailed, match="KeyError: 'atari'"):
        Contestant(sys.executable, "gymnasium-sync", "atari", 1, 1)


def test_closing_a_contestant_ends_what_it_started():
    contestant = Contestant(sys.executable, "gymnasium-async", "noop", 2, 1)
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _group(int(pid)) == contestant.pid]
    assert len(pids) >= 3
    contestant.close()
    contestant.close()
    assert [pid for pid in pids if _group(pid) == contestant.pid] == []


def _group(pid: int) -> int | None:
    """The process group of a process that runs."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state, _, group = stat.read().rpartition(")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(group)
