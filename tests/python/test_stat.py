"""`shoal stat`: what is seen of all that runs, or ran, on this machine for this user."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import gc
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from promise import await_that
from shoal import _core
from shoal.cli.app import run
from shoal.cli.stat_tables import tables
from shoal.stat import VERSION, processes, snapshot
from shoal.stat.boards import boards
from shoal.stat.family import family

BOUND = 60.0
"""Seconds in which what is awaited comes."""

Stat = Callable[..., tuple[int, str, str]]


class Waiting(gymnasium.Env):
    """Its steps wait until a file is there."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, file: str) -> None:
        self.file = file

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while not os.path.exists(self.file):
            time.sleep(0.01)
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Failing(Waiting):
    """From a step of its life on it raises, unless its file is there."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps >= 300 and not os.path.exists(self.file):
            raise ValueError("the licence has expired\nask somebody")
        return np.zeros(2, np.float32), 1.0, self.steps % 10 == 0, False, {}


class Built(Waiting):
    """It waits while it is made."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.step(0)


def same(x: Any) -> Any:
    return x


def wait_for(file: str) -> None:
    while not os.path.exists(file):
        time.sleep(0.01)


@pytest.fixture
def stat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Stat:
    """`shoal stat` with these arguments, in a folder without runs: exit status, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(["stat", "--runs", str(tmp_path / "runs"), *arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture(autouse=True)
def nothing_is_left_of_other_tests() -> None:
    gc.collect()


def mine(kind: str, pid: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """What is seen of a process: this one, unless told otherwise."""
    return [each for each in snapshot(**more)[kind] if each["pid"] == (pid or os.getpid())]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + BOUND
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return found


class TestEnvironments:
    @pytest.mark.parametrize(
        ("backend", "arguments"),
        [
            ("process", {"num_workers": 2}),
            ("process async", {"num_workers": 2, "batch_size": 2}),
            ("serial", {"num_workers": 0}),
            ("serial async", {"num_workers": 0, "batch_size": 2}),
        ],
    )
    def test_what_was_done_is_counted(self, backend: str, arguments: dict[str, Any]) -> None:
        with shoal.make_vec("CartPole-v1", 4, **arguments) as envs:
            envs.reset(seed=0)
            for _ in range(5):
                if "batch_size" in arguments:
                    envs.send(np.zeros(4, np.int64), np.arange(4))
                    envs.recv()
                    envs.recv()
                else:
                    envs.step(envs.action_space.sample())
            (seen,) = mine("environments")
            assert (seen["title"], seen["backend"], seen["state"]) == ("CartPole-v1", backend, "idle")
            assert (seen["envs"], seen["resets"], seen["restarts"], seen["in_flight"]) == (4, 1, 0, 0)
            assert seen["steps"] == 20
            assert 0 < seen["steps_per_second"] and 0 <= seen["wait_seconds"] <= seen["seconds"] < BOUND
            pids = [worker["pid"] for worker in envs.stats()["workers"] if worker["pid"]]
            if backend.startswith("process"):
                pids = [worker["pid"] for worker in envs.health()]
                assert all(worker["memory_bytes"] > 0 for worker in seen["workers"])
                assert sum(worker["busy_seconds"] for worker in seen["workers"]) > 0
            assert [worker["pid"] for worker in seen["workers"]] == pids
        assert not mine("environments")

    def test_native_ones_in_threads(self) -> None:
        with shoal.make_vec("shoal/CartPole-v1", 4, num_workers=2, backend="thread") as envs:
            envs.reset(seed=0)
            envs.step(envs.action_space.sample())
            (seen,) = mine("environments")
            assert (seen["title"], seen["backend"]) == ("shoal/CartPole-v1", "thread")
            assert (seen["num_workers"], seen["workers"], seen["steps"]) == (2, [], 4)

    def test_what_has_no_id_is_called_by_its_class(self) -> None:
        with shoal.make_vec(Waiting, 1, num_workers=0, env_kwargs={"file": "/"}):
            assert mine("environments")[0]["title"] == "Waiting"

    @pytest.mark.parametrize("batch_size", [None, 1])
    def test_where_a_worker_hangs(self, stat: Stat, tmp_path: Path, batch_size: int | None) -> None:
        file = str(tmp_path / "go")
        with shoal.make_vec(Waiting, 2, num_workers=2, env_kwargs={"file": file}, batch_size=batch_size) as envs:
            envs.reset(seed=0)
            envs.send(np.zeros(2, np.int64))
            at_work = until(lambda: [w for w in mine("environments")[0]["workers"] if w["state"] == "stepping"])
            assert at_work[0]["env"] in (0, 1) and at_work[0]["in_reset"] is False
            assert mine("environments")[0]["state"] == "stepping"
            until(lambda: all(w["state_seconds"] > 1 for w in mine("environments")[0]["workers"]))
            assert re.search(r"  worker 1 .* stepping \d+\.\d s in step of environment 1", stat(str(os.getpid()))[1])
            Path(file).touch()
            envs.recv()

    def test_a_worker_that_was_killed_and_replaced(self) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=2, on_fault="restart") as envs:
            envs.reset(seed=0)
            victim = envs.health()[1]["pid"]
            os.kill(victim, signal.SIGKILL)

            def replaced() -> Any:
                envs.step(envs.action_space.sample())
                (seen,) = mine("environments")
                return seen if seen["restarts"] else None

            seen = until(replaced)
            until(lambda: mine("environments")[0]["workers"][1]["pid"] not in (0, victim))
            assert seen["workers"][0]["pid"] == envs.health()[0]["pid"]

    def test_those_of_a_killed_program_are_gone(self, stat: Stat) -> None:
        with program("shoal.make_vec('CartPole-v1', 2, num_workers=1)") as made:
            (seen,) = mine("environments", made.pid)
            ended = os.pidfd_open(seen["workers"][0]["pid"])
            assert "CartPole-v1" in stat(str(made.pid))[1]
            made.kill()
            made.wait()
            assert select.select([ended], [], [], BOUND)[0], "a worker outlived its program"
            os.close(ended)
            assert not mine("environments", made.pid)
            status, shown, error = stat(str(made.pid))
            assert (status, shown) == (1, "")
            assert f"process {made.pid} has nothing of Shoal's" in error and error.count("\n") == 1

    def test_what_a_killed_program_left_to_others_is_told(self) -> None:
        code = "envs = shoal.make_vec('CartPole-v1', 2, num_workers=0); child = os.fork()\nif child == 0: time.sleep(600)\n"
        with program(code + "print(child, flush=True)") as made:
            assert made.stdout is not None
            child = int(made.stdout.readline())
            try:
                assert [each["state"] for each in mine("environments", made.pid)] == ["idle"]
                made.kill()
                made.wait()
                (seen,) = mine("environments", made.pid)
                assert (seen["state"], seen["command"]) == ("killed", "")
            finally:
                os.kill(child, signal.SIGKILL)


class program:  # reads as what it is
    """A Python program that has run `code` and waits for its end."""

    def __init__(self, code: str) -> None:
        head = (
            f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\nimport os, time, shoal\nkept = []\n"
        )
        body = code if "\n" in code else f"kept.append({code})"
        self._code = f"{head}{body}\nprint('ready', flush=True)\nsys.stdin.read()\n"

    def __enter__(self) -> subprocess.Popen[str]:
        self._made = subprocess.Popen(
            [sys.executable, "-c", self._code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if "print(child" not in self._code:
            assert self._made.stdout is not None
            assert self._made.stdout.readline() == "ready\n"
        return self._made

    def __exit__(self, *_: object) -> None:
        self._made.kill()
        self._made.communicate()


class TestStarting:
    def test_environments_that_are_being_built(self, tmp_path: Path) -> None:
        gate = tmp_path / "gate"
        thread = threading.Thread(
            target=lambda: shoal.make_vec(functools.partial(Built, str(gate)), num_workers=1).close()
        )
        thread.start()
        until(lambda: [each["state"] for each in mine("environments")] == ["starting"])
        gate.touch()
        thread.join()


class TestPools:
    def test_tasks_and_who_does_them(self, tmp_path: Path) -> None:
        file = str(tmp_path / "go")
        with mp.Pool(2) as pool:
            assert pool.map(same, range(10), chunksize=1) == list(range(10))
            with pytest.raises(TypeError):
                pool.apply(same, (1, 2))
            pool.map_async(wait_for, [file] * 20, chunksize=1)
            seen = until(lambda: [each for each in mine("pools") if each["added"] == 31])[0]
            assert (seen["num_workers"], seen["done"], seen["failed"]) == (2, 11, 1)
            assert (seen["state"], seen["restarts"]) == ("working", 0)
            assert seen["waiting"] + seen["given"] == 20 and seen["waiting"] > 0
            assert [worker["memory_bytes"] > 0 for worker in seen["workers"]] == [True, True]
            Path(file).touch()
            seen = until(lambda: [each for each in mine("pools") if each["done"] == 31])[0]
            assert (seen["state"], seen["waiting"], seen["given"]) == ("idle", 0, 0)
        until(lambda: not mine("pools"))


class TestCollectors:
    def test_frames_and_what_is_waited_for(self) -> None:
        arguments: dict[str, Any] = {"num_envs": 2, "frames_per_batch": 8, "total_frames": 100, "num_workers": 0}
        with shoal.Collector("CartPole-v1", lambda obs: np.zeros(len(obs), np.int64), **arguments) as collector:
            for _ in range(3):
                next(collector)
            collector.pause()
            (seen,) = mine("collectors")
            assert (seen["mode"], seen["envs"], seen["num_collectors"]) == ("sync", 2, 0)
            assert (seen["frames"], seen["total_frames"], seen["batches"], seen["state"]) == (24, 100, 3, "paused")
            collector.resume()
            assert mine("collectors")[0]["state"] == "idle"
        assert not mine("collectors")

    def test_those_that_are_processes_of_their_own(self, stat: Stat) -> None:
        arguments: dict[str, Any] = {"num_envs": 4, "frames_per_batch": 8, "mode": "multi_sync", "num_collectors": 2}
        policy = functools.partial(np.zeros_like, shape=(2,), dtype=np.int64)
        with shoal.Collector("CartPole-v1", policy, policy_batch=2, on_fault="restart", **arguments) as collector:
            next(collector)
            pids = [each["pid"] for each in collector.stats()["collectors"]]
            seen = json.loads(stat(str(os.getpid()), "--json")[1])
            (found,) = seen["collectors"]
            assert [worker["pid"] for worker in found["workers"]] == pids
            assert found["memory_bytes"] > 0
            assert {each["pid"] for each in seen["environments"]} == set(pids)
            shown = stat(str(os.getpid()), "--workers")[1]
            assert re.search(rf"  process 1 +{pids[1]} ", shown)
            assert len(re.findall("^CartPole-v1 ", shown, re.MULTILINE)) == 2
            os.kill(pids[0], signal.SIGKILL)
            until(lambda: next(collector) and collector.stats()["collectors"][0]["pid"] != pids[0])
            pids = [each["pid"] for each in collector.stats()["collectors"]]
            assert [worker["pid"] for worker in mine("collectors")[0]["workers"]] == pids


def served_pid(rows: np.ndarray) -> np.ndarray:
    return np.full(len(rows), os.getpid())


def mine_of(service: shoal.ModelService) -> dict[str, Any]:
    (seen,) = [each for each in snapshot()["services"] if each["address"] == service.address]
    return seen


class TestServices:
    def test_they_are_there_too(self, stat: Stat) -> None:
        with shoal.ModelService({"abs": np.abs}, context="thread") as service:
            service.model("abs")(np.ones(3))
            (seen,) = [each for each in snapshot()["services"] if each["address"] == service.address]
            assert seen["models"]["abs"]["rows"] == 1
            assert (seen["state"], seen["servers"], seen["restarts"]) == ("running", [os.getpid()], 0)
            assert seen["memory_bytes"] > 2**20 and seen["command"]
            assert service.address in stat()[1]

    def test_servers_are_named_and_counted(self, stat: Stat) -> None:
        with shoal.ModelService({"pid": served_pid}, instances=2, on_fault="restart") as service:
            first = service.model("pid")(1.0)
            assert first in mine_of(service)["servers"]
            os.kill(int(first), signal.SIGKILL)
            await_that(lambda: mine_of(service)["restarts"] == 1 and mine_of(service)["running"] == 2, "another server")
            seen = mine_of(service)
            assert len(seen["servers"]) == 2 and first not in seen["servers"]
            assert re.search(rf"{service.address} .* 2 servers, 1 restart, [1-9]\d* MiB", stat(service.address)[1])
            assert json.loads(stat(service.address, "--json")[1])["services"][0].keys() == seen.keys()

    def test_the_json_of_one_has_what_that_of_all_has(self, stat: Stat) -> None:
        with shoal.ModelService({"abs": np.abs}, context="thread") as service:
            before = time.time()
            seen = json.loads(stat(service.address, "--json")[1])
        assert (seen["version"], [each["address"] for each in seen["services"]]) == (VERSION, [service.address])
        assert before <= seen["time"] <= time.time()

    def test_rates_are_of_the_interval(self, stat: Stat) -> None:
        with shoal.ModelService({"abs": np.abs, "same": np.array}, context="thread") as service:
            before = json.loads(stat(service.address, "--json")[1])
        seen = copy.deepcopy(before)
        seen["time"] += 2
        seen["services"][0]["seconds"] = 1000.0
        seen["services"][0]["models"]["abs"]["rows"] += 5000
        assert "abs  0 clients, 5,000 rows (5/s)" in tables(seen)
        of_interval = tables(seen, before)
        assert "5,000 rows (2,500/s)" in of_interval and "0 rows (0/s)" in of_interval


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has ended, in one of runs."""
    folder = tmp_path_factory.mktemp("work") / "runs" / "ended"
    shoal.learn.train("shoal/CartPole-v1", run_dir=folder, total_steps=1024, final_episodes=1, seed=1)
    return folder


@contextlib.contextmanager
def held(lock: Path) -> Iterator[int]:
    """By this process, as that of a run is held: the descriptor."""
    with lock.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield opened.fileno()


def of(folder: Path) -> dict[str, Any]:
    """What is seen of one run."""
    (seen,) = [each for each in snapshot(folder)["runs"] if each["run_dir"] == str(folder)]
    return seen


class TestWhoTrains:
    @pytest.fixture
    def folder(self, ended: Path, tmp_path: Path) -> Path:
        """Of a run without a result."""
        folder = tmp_path / "runs" / "begun"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text((ended / "config.json").read_text())
        (folder / "lock").touch()
        return folder

    def test_under_another_path(self, folder: Path, tmp_path: Path) -> None:
        """As a container has it: the lock is the same file."""
        (tmp_path / "elsewhere").mkdir()
        os.link(folder / "lock", tmp_path / "elsewhere" / "lock")
        assert of(folder)["state"] == "killed"
        with held(tmp_path / "elsewhere" / "lock"):
            assert (of(folder)["state"], of(folder)["pid"]) == ("training", os.getpid())

    def test_not_in_what_has_the_same_path_here(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with held(tmp_path / "lock") as fd:
            found = [(f"/proc/self/fd/{fd}", str(folder / "lock"))]
            monkeypatch.setattr("shoal.stat.runs.descriptors", lambda pid: found if pid == os.getpid() else [])
            assert (of(folder)["state"], of(folder)["pid"]) == ("killed", None)
            assert not mine("runs")

    def test_what_cannot_be_seen_from_here(self, stat: Stat, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shoal.stat.machine.mine", lambda: [])
        with held(folder / "lock"):
            seen = of(folder)
            assert (seen["state"], seen["pid"], seen["ending"], seen["memory_bytes"]) == ("training", None, None, 0)
            status, shown, _ = stat(str(folder))
        assert status == 0 and " training " in shown
        assert of(folder)["state"] == "killed"

    def test_not_what_was_forked(self, folder: Path) -> None:
        """It has the lock open as well, and keeps it when who trained was killed."""
        code = (
            f"import fcntl; lock = open({str(folder / 'lock')!r}, 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
            "child = os.fork()\nif child == 0: time.sleep(600)\nprint(child, flush=True)"
        )
        with program(code) as made:
            assert made.stdout is not None
            child = int(made.stdout.readline())
            try:
                assert (of(folder)["state"], of(folder)["pid"]) == ("training", made.pid)
                made.kill()
                made.wait()
                assert (of(folder)["state"], of(folder)["pid"]) == ("killed", None)
            finally:
                os.kill(child, signal.SIGKILL)

    def test_nor_where_the_kernel_does_not_say_who_took_the_lock(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shoal.stat.runs.locker_of", lambda descriptor: None)
        with held(folder / "lock"):
            child = os.fork()
            if child == 0:
                time.sleep(600)
            try:
                assert (of(folder)["state"], of(folder)["pid"]) == ("training", os.getpid())
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def test_not_who_has_let_go_of_the_lock(self, folder: Path) -> None:
        with held(folder / "lock") as fd:
            fcntl.flock(fd, fcntl.LOCK_UN)
            assert (of(folder)["state"], of(folder)["pid"]) == ("killed", None)

    def test_a_run_that_has_two_paths_is_one(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "again").symlink_to(folder.parent)
        with held(folder / "lock"):
            assert [each["run_dir"] for each in snapshot(tmp_path / "again")["runs"] if each["pid"] == os.getpid()] == [
                str(folder)
            ]


class TestRuns:
    def test_one_that_goes_on(self, stat: Stat, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        code = (
            f"shoal.learn.train('shoal/CartPole-v1', run_dir={str(folder)!r}, total_steps=10**9, target_return=10**9)\n"
        )
        made = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\nimport shoal\n{code}"]
        )
        try:
            until(lambda: [each for each in mine("runs", made.pid) if each["steps"] > 0])
            (seen,) = mine("runs", made.pid)
            assert (seen["run_dir"], seen["state"], seen["ending"]) == (str(folder), "training", None)
            assert (seen["environment"], seen["algorithm"], seen["total_steps"]) == ("shoal/CartPole-v1", "ppo", 10**9)
            assert seen["steps_per_second"] > 0 and seen["memory_bytes"] > 0 and seen["record_seconds"] < BOUND
            assert any(each["backend"] for each in mine("environments", made.pid))
            assert "training" in stat(str(folder))[1]
        finally:
            made.kill()
            made.wait()
        assert not mine("runs", made.pid)
        (seen,) = [each for each in snapshot(tmp_path)["runs"] if each["run_dir"] == str(folder)]
        assert (seen["state"], seen["pid"], seen["memory_bytes"]) == ("killed", None, 0)
        assert seen["steps"] > 0
        status, shown, _ = stat(str(folder))
        assert status == 0 and re.search(r" killed ", shown)

    def test_one_with_actors(self, stat: Stat, tmp_path: Path) -> None:
        """They step environments of their own, and are the run's all the same."""
        folder = tmp_path / "run"
        options = {"run_dir": str(folder), "num_workers": 2, "total_steps": 10**9, "target_return": 10**9}
        with program(f"kept.append(shoal.learn.Trainer('CartPole-v1', 'a3c', **{options}))\nkept[0].start()\n") as made:
            until(lambda: of(folder)["steps"] > 0)
            whole = json.loads(stat("--json")[1])
            actors = {each["pid"] for each in whole["environments"] if processes.parent_of(each["pid"]) != os.getpid()}
            actors &= family(made.pid) - {made.pid}
            assert len(actors) == 2
            for target in (str(made.pid), str(folder)):
                seen = json.loads(stat(target, "--json")[1])
                assert {each["pid"] for each in seen["environments"]} == actors | {made.pid}
                (run_seen,) = seen["runs"]
                assert run_seen["pid"] == made.pid
                own = processes.memory_of(made.pid)
                assert run_seen["memory_bytes"] > own + min(map(processes.memory_of, actors))
            assert len(re.findall("^CartPole-v1 ", stat(str(folder), "--workers")[1], re.MULTILINE)) == 3

    @pytest.mark.parametrize(
        ("policy", "is_waited_for"), [(None, True), (None, False), ("learn_modules:ActorCritic", True)]
    )
    def test_one_that_failed(self, stat: Stat, tmp_path: Path, policy: str | None, is_waited_for: bool) -> None:
        folder, mended = tmp_path / "run", tmp_path / "mended"
        options: dict[str, Any] = {"total_steps": 1024, "num_envs": 2, "num_steps": 32, "save_every_seconds": 0}
        options |= {"preset": "sb3", "num_workers": 0, "eval_every": 0, "final_episodes": 0, "policy": policy}
        trainer = shoal.learn.Trainer(Failing, run_dir=folder, env_kwargs={"file": str(mended)}, **options)
        with trainer:
            trainer.start()
            if is_waited_for:
                for ask in (trainer.wait, trainer.wait, trainer.result):
                    with pytest.raises(ValueError, match="the licence has expired"):
                        ask()
            else:
                until(lambda: trainer.status()["phase"] == "ended")
        seen = of(folder)
        why = "ValueError: the licence has expired"
        assert (seen["state"], seen["ending"], seen["error"]) == ("failed", "failed", why)
        assert 512 <= seen["steps"] <= 660 and seen["mean_return"] == 10
        assert f" failed: {why} " in stat(str(folder))[1]
        result = json.loads((folder / "result.json").read_text())
        assert (result["ending"], result["error"], result["steps"]) == ("failed", why, seen["steps"])
        mended.touch()
        shoal.learn.train(Failing, run_dir=folder, resume="auto", **options)
        seen = of(folder)
        assert (seen["state"], seen["ending"], seen["error"], seen["steps"]) == ("ended", "budget", None, 1024)

    def test_one_that_failed_goes_on_and_is_killed(self, ended: Path, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        shutil.copytree(ended, folder)
        result = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps({**result, "ending": "failed", "error": "ValueError: once"}))
        assert of(folder)["error"] == "ValueError: once"
        with shoal.learn.Trainer("shoal/CartPole-v1", run_dir=folder, resume=True, total_steps=10**9) as trainer:
            trainer.start()
            until(lambda: not (folder / "result.json").exists())
            killed = tmp_path / "killed"
            shutil.copytree(folder, killed)
        assert (of(killed)["state"], of(killed)["error"]) == ("killed", None)

    def test_what_ctrl_c_has_broken_is_no_failure(self, tmp_path: Path) -> None:
        """Its workers were killed: who did it knows."""
        folder = tmp_path / "run"
        go = {"file": str(tmp_path / "go")}
        options: dict[str, Any] = {"num_envs": 1, "num_workers": 1, "eval_every": 0, "final_episodes": 0}
        with (
            pytest.raises(KeyboardInterrupt),
            shoal.learn.Trainer(Waiting, run_dir=folder, env_kwargs=go, **options) as trainer,
        ):
            trainer.start()
            until(lambda: [w for each in mine("environments") for w in each["workers"] if w["state"] == "stepping"])
            trainer.stop()
            raise KeyboardInterrupt
        assert not (folder / "result.json").exists()
        assert (of(folder)["state"], of(folder)["error"]) == ("killed", None)

    def test_one_that_has_ended(self, stat: Stat, ended: Path) -> None:
        (seen,) = snapshot(ended.parent)["runs"][-1:]
        result = json.loads((ended / "result.json").read_text())
        assert (seen["state"], seen["ending"], seen["pid"]) == ("ended", "budget", None)
        assert (seen["steps"], seen["mean_return"]) == (result["steps"], result["mean_return"])
        status, shown, _ = stat("--runs", str(ended.parent))
        assert status == 0 and f"{ended}" in shown and "ended: budget" in shown

    def test_damaged_files_are_no_error(self, stat: Stat, ended: Path, tmp_path: Path) -> None:
        folder = tmp_path / "runs" / "damaged"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text((ended / "config.json").read_text())
        (folder / "result.json").write_text("{")
        (folder / "progress.jsonl").write_bytes(b'damaged\n{"step": 5, "time/fps": 2.5}\n{"step": 6')
        (seen,) = [each for each in snapshot(folder.parent)["runs"] if each["run_dir"] == str(folder)]
        assert (seen["state"], seen["steps"], seen["steps_per_second"]) == ("killed", 5, 2.5)
        (folder / "config.json").write_text("{}")
        status, _, error = stat(str(folder))
        assert status == 1 and "is not the folder of a run" in error

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("result.json", '{"steps": null, "mean_return": "high"}'),
            ("result.json", '{"mean_return": []}'),
            ("progress.jsonl", '{"step": "7", "time/fps": "fast", "rollout/ep_rew_mean": {}}\n'),
            ("progress.jsonl", '{"step": true, "rollout/ep_rew_mean": 1' + "0" * 400 + "}\n"),
            ("progress.jsonl", "[" * 100_000 + "\n"),
            ("config.json", '{"format": "shoal.run", "env": 1, "config": {"num_envs": "8", "total_steps": "many"}}'),
            ("config.json", '{"format": "shoal.run", "config": [1]}'),
        ],
    )
    def test_what_is_no_number_is_missing(
        self, stat: Stat, ended: Path, tmp_path: Path, name: str, content: str
    ) -> None:
        odd, beside = tmp_path / "runs" / "odd", tmp_path / "runs" / "beside"
        for folder in (odd, beside):
            folder.mkdir(parents=True)
            (folder / "config.json").write_text((ended / "config.json").read_text())
        (odd / name).write_text(content)
        with held(odd / "lock"):
            status, shown, _ = stat()
            assert status == 0 and str(odd) in shown and str(beside) in shown
        status, shown, _ = stat("--json")
        assert status == 0
        (seen,) = [each for each in json.loads(shown)["runs"] if each["run_dir"] == str(odd)]
        numbers = ("total_steps", "envs") if name == "config.json" else ("mean_return", "steps_per_second")
        assert [seen[number] for number in (*numbers, "steps")] == [None, None, 0]

    def test_the_youngest_are_shown(self, ended: Path, tmp_path: Path) -> None:
        for i in range(5):
            folder = tmp_path / str(i)
            folder.mkdir()
            (folder / "config.json").write_text((ended / "config.json").read_text())
            os.utime(folder / "config.json", (1000 + i, 1000 + i))
        shown = [
            Path(each["run_dir"]).name for each in snapshot(tmp_path, 2)["runs"] if str(tmp_path) in each["run_dir"]
        ]
        assert sorted(shown) == ["3", "4"]


class TestCommand:
    def test_nothing_is_there(self, stat: Stat, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shoal.stat.machine.mine", lambda: [])
        monkeypatch.setattr("shoal.stat.machine.services", lambda: [])
        status, shown, error = stat()
        assert (status, shown) == (1, "")
        assert "nothing of Shoal's runs on this machine for this user" in error and error.count("\n") == 1
        status, shown, _ = stat("--json")
        assert status == 1
        seen = json.loads(shown)
        assert [seen[name] for name in ("environments", "pools", "collectors", "services", "runs")] == [[]] * 5
        assert "nothing runs" in stat("--watch", "0.01", "--count", "1")[1]

    def test_it_is_shown_anew_with_the_rate_of_the_interval(self, stat: Stat) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=0) as envs:
            envs.reset(seed=0)
            status, shown, _ = stat(str(os.getpid()), "--watch", "0.01", "--count", "2")
        assert status == 0
        first, second = shown.split("shoal ")[1:]
        assert "rates since the beginning" in first and "rates of the last interval" in second
        status, shown, _ = stat("--watch", "0.01", "--count", "2", "--json")
        assert [json.loads(line)["version"] for line in shown.splitlines()] == [VERSION, VERSION]
        assert stat("--count", "2")[0] == 2

    def test_every_worker_on_request(self, stat: Stat) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=2) as envs:
            envs.reset(seed=0)
            assert "worker 1" not in stat(str(os.getpid()))[1]
            assert "worker 1" in stat(str(os.getpid()), "--workers")[1]

    def test_the_schema(self, ended: Path) -> None:
        """New names may come; one that goes or means something else is a new VERSION."""
        collector = {"num_envs": 1, "frames_per_batch": 2, "num_workers": 0}
        with (
            shoal.make_vec("CartPole-v1", 2, num_workers=2),
            mp.Pool(1),
            shoal.Collector("CartPole-v1", lambda obs: np.zeros(len(obs), np.int64), **collector) as made,
        ):
            next(made)
            seen = snapshot(ended.parent)
        names = {
            "environments": "id title backend pid state seconds state_seconds envs num_workers batches steps steps_per_second "
            "resets wait_seconds in_flight restarts memory_bytes workers command",
            "pools": "id pid state seconds num_workers added done failed waiting given tasks_per_second restarts memory_bytes "
            "workers command",
            "collectors": "id mode pid state seconds state_seconds envs num_collectors frames total_frames frames_per_second "
            "batches wait_seconds pending policy_version restarts memory_bytes workers command",
            "runs": "run_dir pid state ending error environment algorithm envs steps total_steps seconds steps_per_second mean_return "
            "record_seconds memory_bytes command",
        }
        assert VERSION == seen["version"] == 1
        for kind, expected in names.items():
            own = [each for each in seen[kind] if each["pid"] in (os.getpid(), None)]
            assert own and all(set(each) >= set(expected.split()) for each in own), kind
        (workers,) = [
            each["workers"]
            for each in seen["environments"]
            if each["backend"] == "process" and each["pid"] == os.getpid()
        ]
        expected = "pid state memory_bytes env in_reset state_seconds batches busy_seconds"
        assert len(workers) == 2 and all(set(worker) >= set(expected.split()) for worker in workers)


class TestWhatIsNotSeen:
    def test_a_container_is_to_be_looked_at_from_inside(self, stat: Stat) -> None:
        """Its numbers of processes are other processes' here."""
        unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            pytest.skip("who runs this may not make a namespace of processes")
        begin = [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\n"
            + textwrap.dedent("""
            import shoal
            envs = shoal.make_vec("CartPole-v1", 2, num_workers=1)
            print("ready", flush=True)
            sys.stdin.read()
        """),
        ]
        with subprocess.Popen([*unshare, *begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
            assert made.stdout is not None and made.stdout.readline() == "ready\n"
            (inside,) = (int(name) for name in Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text().split())
            assert not [each for each in snapshot()["environments"] if each["pid"] in (1, inside)]
            status, _, error = stat(str(inside))
            assert status == 1 and "look from inside" in error, error
            made.kill()

    @pytest.fixture
    def proc(self) -> Iterator[int]:
        with program("shoal.make_vec('CartPole-v1', 1, num_workers=0)") as made:
            yield made.pid

    def test_processes_of_other_users(self, proc: int, monkeypatch: pytest.MonkeyPatch) -> None:
        assert mine("environments", proc)
        monkeypatch.setattr(os, "getuid", lambda: 1 + os.geteuid())
        assert processes.mine() == [] or proc not in processes.mine()
        assert not mine("environments", proc)

    def test_descriptors_that_may_not_be_opened(self, proc: int, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(path: Any, *arguments: Any, **more: Any) -> Any:
            raise PermissionError(path)

        with monkeypatch.context() as patched:
            patched.setattr("shoal.stat.boards.os.open", refuse)
            assert boards([proc]) == []
        with monkeypatch.context() as patched:
            patched.setattr("shoal.stat.processes.os.listdir", refuse)
            assert boards([proc]) == []
        assert len(boards([proc])) == 1

    def test_a_process_that_is_gone(self) -> None:
        assert boards([2**30]) == []
        assert (processes.memory_of(2**30), processes.command_of(2**30)) == (0, "")

    def test_memory_that_is_no_board(self) -> None:
        board = _core.board.Board("envs serial", ["too few"])
        strange = os.memfd_create("shoal board")
        os.write(strange, b"x" * 100)
        try:
            assert mine("environments") == []
        finally:
            os.close(strange)
        board.end()
