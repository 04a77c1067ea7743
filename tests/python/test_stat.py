"""`shoal stat`: what is seen of all that runs on this machine for this user."""

from __future__ import annotations

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from cli_calls import trained_run
from shoal import _core
from shoal.cli.stat_tables import tables
from shoal.stat import VERSION, processes, snapshot
from shoal.stat.boards import boards
from stat_watching import BOUND, Built, Stat, Waiting, mine, program, until, wait_for


def same(x: Any) -> Any:
    return x


@pytest.fixture(autouse=True)
def nothing_is_left_of_other_tests() -> None:
    gc.collect()


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

    @pytest.mark.parametrize("seconds", ["inf", "1e300", "nan"])
    def test_an_interval_that_nobody_can_wait_for_is_refused(self, stat: Stat, seconds: str) -> None:
        status, shown, error = stat("--watch", seconds)
        assert (status, shown) == (2, "") and "--watch" in error and error.count("\n") == 1

    def test_what_is_no_address_is_missed_as_a_folder(
        self, stat: Stat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "runs" / "walker").mkdir(parents=True)
        (tmp_path / "runs" / "walker" / "config.json").write_text("{")
        of_a_service = "it is no address of a model service, which is like shoal-serve-PID-NUMBER"
        for target, said in (
            ("runs/waker", "there is no folder 'runs/waker'; did you mean runs/walker?"),
            ("runs/none", "there is no folder 'runs/none'"),
            ("rums", "there is no folder 'rums'; did you mean runs?"),
            ("walker", f"there is no folder 'walker', and {of_a_service}"),
            ("shoal-serve-1", "'shoal-serve-1' is no address of a model service, which is like shoal-serve-PID-NUMBER"),
            ("runs/walker/config.json", "is a file, and not the folder of a run; its run is 'runs/walker'"),
        ):
            status, shown, error = stat(target)
            assert (status, shown) == (1, ""), target
            assert error.endswith(f"{said}\n") and error.count("\n") == 1

    def test_every_worker_on_request(self, stat: Stat) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=2) as envs:
            envs.reset(seed=0)
            assert "worker 1" not in stat(str(os.getpid()))[1]
            assert "worker 1" in stat(str(os.getpid()), "--workers")[1]

    def test_the_schema(self, tmp_path: Path) -> None:
        """New names may come; one that goes or means something else is a new VERSION."""
        trained_run(tmp_path)
        collector = {"num_envs": 1, "frames_per_batch": 2, "num_workers": 0}
        with (
            shoal.make_vec("CartPole-v1", 2, num_workers=2),
            mp.Pool(1),
            shoal.Collector("CartPole-v1", lambda obs: np.zeros(len(obs), np.int64), **collector) as made,
        ):
            next(made)
            seen = snapshot(tmp_path)
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


class TestWidth:
    """Lines are as wide as the terminal; of a pipe they are whole."""

    NAME = "/home/somebody/experiments/" + "long-" * 20 + "name"

    def seen(self) -> dict[str, Any]:
        run = {
            "run_dir": self.NAME,
            "environment": "CartPole-v1",
            "algorithm": "ppo",
            "state": "failed",
            "error": "ValueError: the licence has expired",
            **dict.fromkeys(("pid", "ending", "total_steps", "mean_return", "record_seconds", "steps_per_second")),
            **dict.fromkeys(("steps", "memory_bytes"), 123456789),
        }
        return {"time": 0.0, "runs": [run, {**run, "run_dir": "b"}]}

    @pytest.mark.parametrize("width", [30, 80, 120])
    def test_names_are_cut_and_rows_folded(self, width: int) -> None:
        lines = tables(self.seen(), width=width).splitlines()
        assert max(map(len, lines[1:])) <= width
        assert sum(line.startswith("…") and "long-name" in line for line in lines) == 1
        assert sum(line.startswith("b ") or line == "b" for line in lines) == 1
        assert sum("123,456,789" in line for line in lines) == 2

    def test_what_fits_is_whole(self) -> None:
        assert tables(self.seen(), width=400) == tables(self.seen())
        assert f"{self.NAME} " in tables(self.seen())

    def test_it_is_that_of_a_terminal(self, stat: Stat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        folder = tmp_path / "runs" / self.NAME.rpartition("/")[2]
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"format": "shoal.run"}')
        monkeypatch.setenv("COLUMNS", "50")
        assert str(folder) in stat(str(folder))[1]
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        shown = stat(str(folder))[1]
        assert "name" in shown and max(map(len, shown.splitlines())) <= 50

    def test_names_leave_the_terminal_as_it_is(self, stat: Stat, tmp_path: Path) -> None:
        folder = tmp_path / "runs" / "a\n\x1b[31mred"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"format": "shoal.run"}')
        shown = stat(str(folder))[1]
        assert rf"{tmp_path}/runs/a\n\x1b[31mred  " in shown and "\x1b" not in shown
        assert json.loads(stat(str(folder), "--json")[1])["runs"][0]["run_dir"] == str(folder)


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
