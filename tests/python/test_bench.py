"""The benchmark suite: what it computes from its measurements, and that it measures. Speed itself is not tested here."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

import shoal.bench
from bench_scripts import script
from shoal.bench import BenchResult, Measurement, parking
from shoal.bench.beside import Beside
from shoal.bench.measuring import Measure, Task, best_of
from shoal.bench.process import ContestantFailed, Process
from shoal.bench.report import Report
from shoal.bench.roster import CONTESTANTS, PEERS, Contestant, interpreter, needs
from shoal.bench.suite import selected
from shoal.bench.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]


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
        "settings": {},
        "num_workers": 0,
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


def test_subject_is_the_first_of_the_workload_s_that_was_measured():
    asynchronous = Measurement("sleep-exp", 8, "shoal-async", [4.0])
    assert (
        result(Measurement("sleep-exp", 8, "shoal-process", [2.0]), asynchronous).subject("sleep-exp", 8)
        == "shoal-async"
    )
    found = result(
        Measurement("sleep-exp", 8, "shoal-async", [], "ImportError: no such thing"),
        Measurement("sleep-exp", 8, "shoal-process", [2.0]),
        Measurement("sleep-exp", 8, "gymnasium-sync", [1.0]),
        Measurement("noop", 8, "gymnasium-sync", [1.0]),
    )
    assert (found.subject("sleep-exp", 8), found.subject("noop", 8)) == ("shoal-process", None)
    assert [(c.subject, c.peer, c.ratio.median) for c in found.comparisons()] == [
        ("shoal-process", "gymnasium-sync", 2.0)
    ]
    text = io.StringIO()
    Report(Console(file=text, width=100)).table(result(Measurement("noop", 8, "gymnasium-sync", [1.0])))
    assert "gymnasium-sync" in text.getvalue() and "x:" not in text.getvalue()


def test_what_was_tuned_is_told():
    tuned = result(Measurement("noop", 8, "pufferlib-sync", [1.0], settings={"num_workers": 1}))
    text = io.StringIO()
    Report(Console(file=text, width=100)).table(tuned)
    assert "pufferlib-sync: best with num_workers=1" in text.getvalue()
    assert tuned.to_dict()["rates"][0]["settings"] == {"num_workers": 1}


def test_a_library_s_name_means_all_of_its_contestants():
    assert [c.name for c in selected(["sb3", "shoal-serial"])] == ["shoal-serial", "sb3-dummy", "sb3-subproc"]
    assert [c.name for c in selected(None)] == list(CONTESTANTS)


def test_every_peer_has_an_environment_and_every_workload_a_subject():
    """benchmarks/peers/setup makes what `PEERS` names, and what contestants ask for is there."""
    files = {path.stem for path in (ROOT / "benchmarks/peers").glob("*.txt")}
    needed = {needs(c, w) for c in CONTESTANTS.values() for w in WORKLOADS if c.steps(w)}
    assert set(PEERS) == needed - {None}
    # Of torch_ppo.py, pettingzoo_envs.py, and of examples/rllib.
    assert files == set(PEERS) | {"cleanrl", "pettingzoo", "ray"}
    for name, workload in WORKLOADS.items():
        assert any(CONTESTANTS[subject].steps(name) for subject in workload.subjects)


def test_wrong_names_and_numbers_are_refused():
    with pytest.raises(ValueError, match="no workload 'atari'; choose from cartpole"):
        shoal.bench.run(workloads=["atari"])
    with pytest.raises(ValueError, match="no contestant 'ray'; choose from shoal-auto"):
        shoal.bench.run(contestants=["ray"])
    with pytest.raises(ValueError, match="beside must be 0 or more"):
        shoal.bench.run(beside=-1)
    for wrong in ({"num_envs": []}, {"num_envs": [0]}, {"rounds": 0}, {"seconds": 0}, {"num_workers": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            shoal.bench.run(**wrong)


@pytest.mark.parametrize("workload", [name for name, workload in WORKLOADS.items() if workload.peer is None])
def test_every_contestant_without_peers_is_measured(workload, monkeypatch):
    monkeypatch.setenv("SHOAL_PEERS", "/nowhere")
    text = io.StringIO()
    found = shoal.bench.run([workload], num_envs=[3], num_workers=2, rounds=2, seconds=0.01, console=Console(file=text))
    names = [m.contestant for m in found.measurements]
    assert names == [c.name for c in CONTESTANTS.values() if c.peer is None and c.steps(workload)]
    for m in found.measurements:
        assert m.error is None and len(m.rates) == 2 and min(m.rates) > 0, m
        assert m.num_workers == 2
    lacking = {needs(c, workload) for c in CONTESTANTS.values() if c.steps(workload)} - {None}
    assert all(PEERS[peer] in text.getvalue() for peer in lacking)
    assert f"side by side do the work of {found.machine['worth']:.1f}" in " ".join(text.getvalue().split())
    assert found.notes and json.loads(json.dumps(found.to_dict()))["notes"] == found.notes
    subject = found.subject(workload, 3)
    assert subject in WORKLOADS[workload].subjects
    assert {c.peer for c in found.comparisons()} == set(names) - {subject}


def test_peers_that_are_not_installed_cannot_be_asked_for_alone(monkeypatch):
    monkeypatch.setenv("SHOAL_PEERS", "/nowhere")
    with pytest.raises(ValueError, match="EnvPool is not measured: run benchmarks/peers/setup"):
        shoal.bench.run(["native-cartpole"], contestants=["envpool"])
    with pytest.raises(ValueError, match="ALE is not measured"):  # what the workload needs
        shoal.bench.run(["pong"], contestants=["gymnasium"])
    with pytest.raises(ContestantFailed, match="there is no virtual environment envpool in /nowhere"):
        Process(CONTESTANTS["envpool-sync"], "native-cartpole", 2, 1)


@pytest.mark.parametrize("peer", list(PEERS))
def test_peers_are_measured_where_they_are_installed(peer):
    if interpreter(peer) is None:
        pytest.skip("benchmarks/peers/setup has not been run")
    entrants = [c for c in CONTESTANTS.values() if c.peer == peer]
    measured: set[str] = set()
    for workload in WORKLOADS:
        names = [c.name for c in entrants if c.steps(workload) and (c.own or c.name not in measured)]
        if not names:
            continue
        console = Console(file=io.StringIO())
        found = shoal.bench.run([workload], [4], 2, rounds=1, seconds=0.01, contestants=names, console=console)
        assert [(m.contestant, len(m.rates)) for m in found.measurements] == [(name, 1) for name in names], found
        assert all(len(found.versions[name]) >= 3 for name in names)
        measured.update(names)
    assert measured == {c.name for c in entrants}


def test_atari_is_the_same_for_those_with_environments_of_their_own():
    """In the interpreter that has it: what everybody sees of Pong, and the library that has it in C++."""
    if interpreter("ale") is None:
        pytest.skip("benchmarks/peers/setup ale has not been run")
    console = Console(file=io.StringIO())
    names = ["shoal-serial", "shoal-atari-serial", "gymnasium-sync", "ale-sync", "plain-loops"]
    found = shoal.bench.run(["pong"], [2], 1, rounds=1, seconds=0.01, contestants=names, console=console)
    assert [(m.contestant, len(m.rates)) for m in found.measurements] == [(name, 1) for name in names], found
    code = """
import numpy
from ale_py.vector_env import AtariVectorEnv
from contextlib import ExitStack
from shoal.bench.adapters.ale import make
from shoal.bench.measuring import Task
from shoal.bench.workloads import make_pong
envs = make(Task("sync", "pong", 1, 1, ExitStack()))
env = make_pong()
assert envs.single_observation_space == env.observation_space, (envs.single_observation_space, env.observation_space)
assert envs.single_action_space.n == env.action_space.n
frames = envs.reset(seed=0)[1]["frame_number"][0]
for i in range(1, 4):  # an action lasts four frames in both
    assert envs.step(numpy.ones(1, numpy.int64))[4]["frame_number"][0] == frames + 4 * i
env.reset(seed=0)
frames = env.unwrapped.ale.getFrameNumber()
for i in range(1, 4):
    env.step(1)
    assert env.unwrapped.ale.getFrameNumber() == frames + 4 * i
"""
    done = subprocess.run(
        [interpreter("ale"), "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_contestant_that_cannot_start_says_why_and_leaves_nothing():
    with pytest.raises(ContestantFailed, match="KeyError: 'atari'"):
        Process(Contestant("gymnasium", "atari"), "noop", 1, 1)


def test_who_is_not_on_turn_is_stopped(monkeypatch):
    """All of its processes, those of Shoal's zygote included; and while it is measured they run."""
    seen: list[set[str]] = []
    with Process(CONTESTANTS["shoal-process"], "noop", 2, 2) as contestant:
        assert len(parking.processes_below(contestant.pid)) >= 4  # itself, a zygote, two workers
        assert set(parking.processes_below(contestant.pid).values()) == {"T"}
        ask = contestant._ask

        def looking(line: str, timeout: float) -> dict[str, object]:
            seen.append(set(parking.processes_below(contestant.pid).values()))
            return ask(line, timeout)

        monkeypatch.setattr(contestant, "_ask", looking)
        for _ in range(2):
            assert contestant.measure(0.01) > 0
            assert set(parking.processes_below(contestant.pid).values()) == {"T"}
    assert len(seen) == 2 and not any("T" in states for states in seen)
    assert parking.processes_below(contestant.pid) == {}
    parking.resume(contestant.pid)
    parking.stop(contestant.pid)


def test_contestants_that_are_stopped_end_with_the_suite(tmp_path):
    code = """
import os, signal
from shoal.bench.process import Process
from shoal.bench.roster import CONTESTANTS
contestants = [Process(CONTESTANTS[name], "noop", 2, 1) for name in ("gymnasium-async", "shoal-process")]
from shoal.bench import parking
print(*[pid for contestant in contestants for pid in parking.processes_below(contestant.pid)], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    pids = [int(pid) for pid in done.stdout.split()]
    assert done.returncode == -9 and len(pids) >= 6, done
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], 30)[0], f"{pid} runs on: {Path(f'/proc/{pid}/stat').read_text()}"
        finally:
            os.close(descriptor)


def test_others_compute_beside_while_a_contestant_steps():
    with Beside(2) as others:
        pids = others.pids
        assert [parking.processes_below(pid) for pid in pids] == [{pid: "T"} for pid in pids]
        with others.running():
            assert [parking.processes_below(pid) for pid in pids] == [{pid: "R"} for pid in pids]
        assert [parking.processes_below(pid) for pid in pids] == [{pid: "T"} for pid in pids]
    assert [parking.processes_below(pid) for pid in pids] == [{}, {}]
    console = Console(file=io.StringIO(), width=120)
    found = shoal.bench.run(
        ["noop"], [2], 1, rounds=1, seconds=0.01, contestants=["shoal-serial"], beside=1, console=console
    )
    assert found.to_dict()["beside"] == 1 and "beside 1 busy processes" in console.file.getvalue()


def test_closing_a_contestant_ends_what_it_started():
    contestant = Process(CONTESTANTS["gymnasium-async"], "noop", 2, 1)
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _group(int(pid)) == contestant.pid]
    assert len(pids) >= 3
    contestant.close()
    contestant.close()
    assert [pid for pid in pids if _group(pid) == contestant.pid] == []


def run_tables(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/tables.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_tables_are_made_of_the_closing_lines_of_runs(tmp_path):
    files = []
    for i, peer in enumerate(("gymnasium-sync", "pufferlib-sync")):
        found = result(
            Measurement("noop", 8, "shoal-process", [2e6 + i]),
            Measurement("noop", 8, peer, [1000.0], settings={"num_workers": 1} if i else {}),
            *([Measurement("noop", 8, "pufferlib-serial", [2000.0])] if i else []),
            Measurement("noop", 8, "sb3-dummy", [], "ImportError: no such thing"),
        ).to_dict()
        found["machine"] = {"cpu": "a CPU", "cpus": 2, "kernel": "6", "python": "3.11.7", "shoal": "0.1.0"}
        found["versions"] = {peer: {"python": "3.11.7", "gymnasium": "1.4.0"}}
        files.append(tmp_path / f"{i}.json")
        files[-1].write_text("something else\n" + json.dumps(found) + "\n")
    done = run_tables(*files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("a CPU, 2 CPUs, Linux 6, Python 3.11.7, Shoal 0.1.0; medians of 3 rounds of 1 s")
    assert lines[1] == "gymnasium 1.4.0."
    assert lines[3:6] == [
        "| × of each one's best mode | Shoal, steps/s | Gymnasium | PufferLib |",
        "|---|---|---|---|",
        "| an environment that does nothing, 8 | 2.00 M shoal-process | 2,000 sync | 1,000 serial |",
    ]
    assert lines[7] == "**an environment that does nothing, 8 environments**"
    assert lines[11:] == [
        "| **shoal-process** | 2.00 M (2.00 M – 2.00 M); 2.00 M (2.00 M – 2.00 M) | | |",
        "| gymnasium-sync | 1,000 (1,000 – 1,000) | 2,000 (2,000 – 2,000) |  |",
        "| sb3-dummy | failed: ImportError: no such thing | | |",
        "| pufferlib-sync | 1,000 (1,000 – 1,000) | 2,000 (2,000 – 2,000) | num_workers=1 |",
        "| pufferlib-serial | 2,000 (2,000 – 2,000) | 1,000 (1,000 – 1,000) |  |",
    ]


def test_ranges_over_hosts_are_computed_from_what_is_kept(tmp_path, monkeypatch):
    tables = script("tables")
    for folder in ("benchmarks", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "README.md").write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "benchmarks/results")
    for host, rate, more in (("a", 1000.0, []), ("b", 3000.0, [Measurement("noop", 64, "sb3-dummy", [10.0])])):
        subject, peer = (
            Measurement("noop", 64, "shoal-auto", [rate]),
            Measurement("noop", 64, "gymnasium-sync", [500.0]),
        )
        found = result(subject, peer, *more).to_dict()
        found["machine"] = {
            "cpu": f"CPU {host}",
            "cpus": 2,
            "kernel": "6",
            "python": "3.11.7",
            "shoal": "0.1.0",
            "worth": 1.2,
        }
        beside = {**found, "beside": 3}
        for run in (found, beside):
            path = tmp_path / f"{host}-{run['beside']}.json"
            path.write_text(json.dumps(run))
        monkeypatch.setattr(sys, "argv", ["tables.py", "--keep", host, str(tmp_path / f"{host}-0.json"), str(path)])
        tables.main()
    monkeypatch.setattr(sys, "argv", ["tables.py", "--write"])
    tables.main()
    short, whole = ((tmp_path / name).read_text() for name in ("README.md", "benchmarks/README.md"))
    for text in (short, whole):
        assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
        assert "- **a**: CPU a, 2 CPUs that side by side do the work of 1.2." in text
        assert "| an environment that does nothing, 64 | 1,000 · 3,000 | 2.00 – 6.00 | 300 (1 of 2) |" in text
    assert "beside" not in short
    assert "| an environment that does nothing, 64, beside 3 busy processes | 1,000 · 3,000 | 2.00 – 6.00 |" in whole
    assert "**an environment that does nothing, 64, beside 3 busy processes**" in whole


def test_the_tables_are_those_of_the_results_that_are_kept():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import tables; print(all(t in p.read_text() for p, t in tables.pages(tables.kept()).items()))",
        ],
        cwd=ROOT / "benchmarks",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True\n", done


def test_tables_of_what_is_no_result_say_so(tmp_path):
    (tmp_path / "x.json").write_text("Killed\n")
    done = run_tables(tmp_path / "x.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "x.json does not end with the JSON line" in done.stderr


def test_the_page_has_room_for_the_tables():
    """benchmarks/tables.py --write replaces what is between."""
    page = (ROOT / "benchmarks/README.md").read_text()
    assert page.index("<!-- tables: made by benchmarks/tables.py -->") < page.index("<!-- end of tables -->")


def test_settings_are_chosen_by_the_median_of_several_windows():
    """One window in which the slower ones were lucky does not decide."""
    rates = {"steady": [10, 10, 10], "lucky": [99, 1, 1], "unlucky": [1, 12, 12]}
    left: dict[str, list[int]] = {}

    def build(task: Task, which: str) -> Measure:
        left[which] = [0, *rates[which]]  # the first one warms up
        return lambda seconds: (left[which].pop(0), 1.0) if left[which] else (-1, 1.0)

    task = Task("mode", "noop", 4, 2, ExitStack())
    best_of(task, [{"which": which} for which in rates], build)
    assert task.settings == {"which": "unlucky"}
    assert [left[which] for which in ("steady", "lucky")] == [[], []]


def test_settings_that_a_library_fails_with_are_left_out():
    def build(task: Task, size: int) -> Measure:
        if size != 2:
            raise AttributeError(f"none of {size}")
        return lambda seconds: (size, seconds)

    task = Task("mode", "noop", 4, 2, ExitStack())
    assert best_of(task, [{"size": size} for size in (1, 2, 3)], build)(1.0) == (2, 1.0)
    with pytest.raises(AttributeError, match="none of 1"):
        best_of(task, [{"size": size} for size in (1, 3)], build)


def test_the_fastest_settings_are_chosen():
    """Of three, told apart by what they report, not by the clock; trials are closed before the next begins."""
    standing: list[int] = []

    def build(task: Task, size: int) -> Measure:
        assert not standing
        standing.append(size)
        task.closing.callback(standing.clear)
        return lambda seconds: (size, seconds)

    with ExitStack() as closing:
        task = Task("mode", "noop", 4, 2, closing)
        assert best_of(task, [{"size": size} for size in (1, 3, 2)], build)(1.0) == (3, 1.0)
        assert (task.settings, standing) == ({"size": 3}, [3])
        assert best_of(Task("mode", "noop", 4, 2, ExitStack()), [{"size": 7}], lambda task, size: size) == 7
    assert standing == []


def _group(pid: int) -> int | None:
    """The process group of a process that runs."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state, _, group = stat.read().rpartition(")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(group)
