"""`shoal trace` and `shoal bench --explain`: timelines of what processes are busy with."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from collect_policies import zeros
from shoal import _core
from shoal.cli.app import run
from shoal.stat import snapshot
from shoal.trace import Listener, breakdown, family
from shoal.trace.processes import recorders

BOUND = 60.0
"""Seconds in which what is awaited comes."""

STEPS = """
import numpy as np, shoal
with shoal.make_vec("CartPole-v1", 4, num_workers=2) as envs:
    envs.reset(seed=0)
    print("stepping", flush=True)
    while True:
        envs.step(np.zeros(4, np.int64))
"""


class Lines(gymnasium.Env):
    """Observations that no policy of Shoal's takes."""

    observation_space = gymnasium.spaces.Text(5)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return "a", {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return "b", 0.0, False, False, {}


class Slow(gymnasium.Env):
    """A step takes 5 ms; it fails once there is a file."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fails: str) -> None:
        self.fails = Path(fails)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.fails.exists():
            raise LookupError("the simulator is gone")
        time.sleep(0.005)
        return np.ones(2, np.float32), 0.0, False, False, {}


class Pictures(Lines):
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((84, 84), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.ones((84, 84), np.uint8), 0.0, False, False, {}


def own_family() -> set[int]:
    return family(os.getpid())


def traced(work: Any) -> list[dict[str, Any]]:
    """What this process and its workers recorded meanwhile."""
    gc.collect()
    listener = Listener(own_family)
    listener.listen_while(work)
    return listener.stop()


def named() -> set[str]:
    """What the processes that work for this one are called in a timeline."""
    return {process["name"] for process in traced(lambda: None)}


def spans(process: dict[str, Any]) -> Counter[str]:
    return Counter(_core.trace.SPANS[span] for span in process["span"])


def of_this(processes: list[dict[str, Any]]) -> dict[str, Any]:
    (own,) = [process for process in processes if process["pid"] == os.getpid()]
    return own


@pytest.fixture
def stepping() -> Any:
    """A program that steps environments in two workers."""
    process = subprocess.Popen([sys.executable, "-c", STEPS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "stepping\n"
    yield process
    process.kill()
    process.communicate()


class TestSpans:
    def test_of_workers_and_their_caller(self) -> None:
        with shoal.make_vec("CartPole-v1", 4, num_workers=2) as envs:
            envs.reset(seed=0)
            processes = traced(lambda: [envs.step(np.zeros(4, np.int64)) for _ in range(20)])
            pids = {worker["pid"] for worker in envs.health()}
        own = of_this(processes)
        assert spans(own) == {"step": 20, "wake": 20, "wait": 20}
        workers = [process for process in processes if process["pid"] in pids]
        assert sorted(worker["name"] for worker in workers) == ["worker 0", "worker 1"]
        for worker in workers:
            counts = spans(worker)
            assert counts["worker.step"] == 20
            assert counts["env.step"] + counts["env.reset"] == 40
            assert set(worker["arg"][worker["span"] == _core.trace.SPANS.index("env.step")]) <= {0, 1, 2, 3}
        for process in processes:
            assert process["lost"] == 0
        (rounds,) = {tuple(w["arg"][w["span"] == _core.trace.SPANS.index("worker.step")]) for w in workers}
        assert list(rounds) == list(own["arg"][own["span"] == _core.trace.SPANS.index("step")])

    def test_of_copies_that_take_a_while(self) -> None:
        with shoal.make_vec(Pictures, 4, num_workers=1) as envs:
            envs.reset(seed=0)
            own = of_this(traced(lambda: [envs.step(np.zeros(4, np.int64)) for _ in range(5)]))
        assert spans(own) == {"step": 5, "wake": 5, "wait": 5, "copy": 10}

    @pytest.mark.parametrize("env", ["CartPole-v1", "shoal/CartPole-v1"])
    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_of_environments_that_are_stepped_one_by_one(self, env: str, num_workers: int) -> None:
        with shoal.make_vec(env, 4, num_workers=num_workers, batch_size=2) as envs:
            envs.reset(seed=0)

            def work() -> None:
                envs.send(np.zeros(4, np.int64), np.arange(4))
                envs.recv()
                envs.recv()

            processes = traced(work)
        assert spans(of_this(processes))["wait"] == 2
        in_workers = sum((spans(process) for process in processes), Counter())
        assert 1 <= in_workers["worker.step"] <= 4
        assert in_workers["env.step"] == (4 if env == "CartPole-v1" else 0)

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_of_native_environments_in_this_process(self, num_workers: int) -> None:
        with shoal.make_vec("shoal/CartPole-v1", 64, num_workers=num_workers) as envs:
            envs.reset(seed=0)
            own = of_this(traced(lambda: [envs.step(np.zeros(64, np.int64)) for _ in range(10)]))
        counts = spans(own)
        assert counts["step"] == 10 and counts["worker.step"] >= 10

    def test_of_training(self, tmp_path: Path) -> None:
        def train(algorithm: str) -> Counter[str]:
            return spans(
                of_this(
                    traced(
                        lambda: shoal.learn.train(
                            "shoal/CartPole-v1",
                            algorithm,
                            preset="sb3",
                            num_envs=4,
                            num_workers=0,
                            total_steps=400,
                            run_dir=tmp_path / algorithm,
                            final_episodes=0,
                            eval_episodes=1,
                            **({"num_steps": 50} if algorithm == "ppo" else {"learning_starts": 100}),
                        )
                    )
                )
            )

        ppo = train("ppo")
        assert (ppo["collect"], ppo["update"], ppo["infer"]) == (2, 2, 100)
        assert ppo["evaluate"] >= 1 and ppo["save"] >= 1
        dqn = train("dqn")
        assert dqn["infer"] == 100 and 0 < dqn["update"] < 100

    def test_of_a_model_service_and_its_clients(self) -> None:
        def double(rows: Any) -> Any:
            time.sleep(0.02)  # so that the client waits
            return rows * 2

        with shoal.ModelService({"double": double}, context="thread") as service:
            model = service.model("double")
            model(np.ones(3, np.float32))
            own = of_this(traced(lambda: model(np.ones(3, np.float32))))
        assert spans(own)["batch"] == 1 and spans(own)["service.wait"] >= 1

    def test_processes_that_learn_or_collect_have_the_name_of_what_they_do(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"total_steps": 10**9, "num_envs": 2, "final_episodes": 0}
        for number, (more, names) in enumerate(
            (
                ({"algorithm": "a3c", "num_workers": 2}, {"actor 0", "actor 1"}),
                ({"algorithm": "ppo", "num_workers": 0, "nproc": 2}, {"rank 1"}),
            )
        ):
            with shoal.learn.Trainer("CartPole-v1", run_dir=tmp_path / str(number), **options, **more) as trainer:
                trainer.start()
                assert names <= named(), names
        collecting: dict[str, Any] = {"num_envs": 2, "frames_per_batch": 8, "mode": "multi_sync", "num_collectors": 2}
        with shoal.Collector("CartPole-v1", zeros, **collecting) as collector:
            next(collector)
            assert {"collector 0", "collector 1"} <= named()


class TestListening:
    def test_nothing_is_recorded_of_whom_nobody_listens_to(self) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=0) as envs:
            envs.reset(seed=0)
            assert not spans(of_this(traced(lambda: None)))

    def test_a_worker_that_comes_later_is_in_it(self) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=1, on_fault="restart") as envs:
            envs.reset(seed=0)
            killed = envs.health()[0]["pid"]

            def work() -> None:
                os.kill(killed, signal.SIGKILL)
                deadline = time.monotonic() + BOUND
                while time.monotonic() < deadline:
                    envs.step(np.zeros(2, np.int64))
                    if envs.health()[0]["pid"] not in (killed, 0):
                        break
                for _ in range(100):
                    envs.step(np.zeros(2, np.int64))
                    time.sleep(0.01)

            pids = {process["pid"] for process in traced(work) if process["name"] == "worker 0"}
        assert killed in pids and len(pids) == 2

    def test_of_a_process_with_a_fork_only_the_process_has_it(self) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=0):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if not list(recorders(os.getpid())) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert len(list(recorders(os.getpid()))) == 1


class TestCommand:
    def test_it_writes_a_timeline_of_a_program_and_its_workers(
        self, stepping: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "trace.json"
        assert run(["trace", str(stepping.pid), "--seconds", "0.3", "--output", str(file), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        events = json.loads(file.read_text())["traceEvents"]
        names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        assert {"worker 0", "worker 1"} < names
        assert {event["name"] for event in events if event.get("ph") == "X"} >= {"wait", "worker.step", "env.step"}
        begun = [event for event in events if event["name"] == "step" and event["ph"] == "b"]
        assert len(begun) == len([event for event in events if event["name"] == "step" and event["ph"] == "e"]) > 0
        assert all(event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0 for event in events)
        assert said["processes"] == len(names) and said["spans"] > 0 and said["output"] == str(file)

    def test_of_one_that_is_killed_meanwhile(self, stepping: Any, tmp_path: Path) -> None:
        def steps() -> int:
            return sum(each["steps"] for each in snapshot()["environments"] if each["pid"] == stepping.pid)

        listener = Listener(lambda: family(stepping.pid))
        before = steps()
        while steps() <= before + 100:  # it may have to wait for a CPU
            assert not listener.listen(0.05)
        stepping.kill()
        stepping.wait()
        processes = listener.stop()
        (seen,) = [process for process in processes if process["pid"] == stepping.pid]
        assert spans(seen)["step"] > 0

    def test_one_listens_at_a_time(self, stepping: Any, capsys: pytest.CaptureFixture[str]) -> None:
        listener = Listener(lambda: family(stepping.pid))
        assert run(["trace", str(stepping.pid), "--seconds", "0.1"]) == 1
        assert "is being traced by somebody else" in capsys.readouterr().err
        listener.stop()

    def test_what_cannot_be_traced_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["trace", "999999999"]) == 1
        assert "there is no such process" in capsys.readouterr().err
        assert run(["trace", str(tmp_path / "none")]) == 2
        assert "there is no folder" in capsys.readouterr().err
        assert run(["trace", str(os.getpid()), "--output", str(tmp_path / "none" / "file")]) == 2
        assert "no folder" in capsys.readouterr().err

    def test_a_file_that_cannot_be_written_is_said_before_it_is_listened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["trace", str(os.getpid()), "--output", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert f"{str(tmp_path)!r} is a folder" in error and "listening" not in error
        monkeypatch.setattr("shoal.cli.runs.os.access", lambda *_: False)
        assert run(["trace", str(os.getpid()), "--output", str(tmp_path / "file")]) == 1
        assert "permission denied; name a file elsewhere by --output" in capsys.readouterr().err

    def test_no_file_of_a_run_is_replaced(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        checkpoint = tmp_path / "run" / "checkpoints" / "last"
        checkpoint.mkdir(parents=True)
        (tmp_path / "run" / "config.json").write_text('{"format": "shoal.run"}')
        (checkpoint / "state.json").write_text("{}")
        (tmp_path / "link").symlink_to(tmp_path / "run" / "config.json")
        own, of_a_checkpoint = "is what a run keeps there of its own", "is in the folder of a checkpoint"
        for file, said in (
            ("run/config.json", own),
            ("run/progress.jsonl", own),
            ("link", own),
            ("run/checkpoints/last/trace.json", of_a_checkpoint),
        ):
            assert run(["trace", str(os.getpid()), "--output", str(tmp_path / file)]) == 2
            error = capsys.readouterr().err
            assert said in error and "listening" not in error
        assert (tmp_path / "run" / "config.json").read_text() == '{"format": "shoal.run"}'
        assert list(checkpoint.iterdir()) == [checkpoint / "state.json"]

    def test_an_older_file_stays_where_there_is_no_room(
        self, stepping: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write = Listener.write

        def without_room(self: Listener, file: Path) -> None:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
            try:
                write(self, file)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        monkeypatch.setattr(Listener, "write", without_room)
        file = tmp_path / "trace.json"
        file.write_text("an older one")
        assert run(["trace", str(stepping.pid), "--seconds", "0.3", "--output", str(file)]) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error == f"shoal: cannot write to {str(file)!r}: File too large; name a file elsewhere by --output"
        assert file.read_text() == "an older one" and list(tmp_path.iterdir()) == [file]

    def test_it_is_written_to_a_pipe(self, stepping: Any) -> None:
        command = [sys.executable, "-m", "shoal.cli", "trace", str(stepping.pid), "--seconds", "0.1"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(
            [*command, "--output", "/dev/stdout"], env=environment, capture_output=True, timeout=BOUND, check=True
        )
        assert json.loads(done.stdout)["traceEvents"]

    def test_the_nearest_folder_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "walk").mkdir()
        for target, said in (
            ("nothere", "there is no folder 'nothere'"),
            ("wlk", "there is no folder 'wlk'; did you mean walk?"),
        ):
            assert run(["trace", target]) == 2
            assert capsys.readouterr().err == f"shoal: {said}\n"

    def test_it_ends_with_what_is_traced(
        self, stepping: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        look = Listener._look

        def killing(self: Listener, *, first: bool = False) -> None:
            look(self, first=first)
            stepping.kill()

        monkeypatch.setattr(Listener, "_look", killing)
        file = tmp_path / "trace.json"
        assert run(["trace", str(stepping.pid), "--seconds", "600", "--output", str(file)]) == 0
        assert "stopped early: all that was traced has ended" in capsys.readouterr().err
        assert "traceEvents" in json.loads(file.read_text())

    def test_what_hangs_is_no_span_and_that_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with shoal.make_vec("CartPole-v1", 2, num_workers=0):
            assert run(["trace", str(os.getpid()), "--seconds", "0.01"]) == 0
        error = capsys.readouterr().err
        assert "0 spans" in error and "a span is written when it ends, so a call that hangs is not in it" in error

    @pytest.mark.parametrize("words", [["--seconds", "nan"], [""]])
    def test_what_means_nothing_is_refused(self, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["trace", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_ctrl_c_ends_it_with_what_came_until_then(self, stepping: Any, tmp_path: Path) -> None:
        file = tmp_path / "trace.json"
        command = [sys.executable, "-m", "shoal.cli", "trace", str(stepping.pid), "--seconds", "600", "--json"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([*command, "--output", str(file)], env=environment, **pipes) as listening:
            assert listening.stderr.readline().startswith("listening to")
            listening.send_signal(signal.SIGINT)
            out, error = listening.communicate(timeout=BOUND)
        assert listening.returncode == 130 and "stopped early: by Ctrl-C" in error
        assert json.loads(out)["output"] == str(file) and "traceEvents" in json.loads(file.read_text())

    def test_of_a_run_whose_process_cannot_be_seen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "config.json").write_text('{"format": "shoal.run"}')
        monkeypatch.setattr("shoal.stat.processes.mine", lambda: [])
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert run(["trace", str(tmp_path)]) == 1
            assert "a process that cannot be seen from here trains in" in capsys.readouterr().err
        assert run(["trace", str(tmp_path)]) == 1
        assert "nobody trains in" in capsys.readouterr().err

    def test_of_a_run(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder, file = tmp_path / "run", tmp_path / "trace.json"
        with shoal.learn.Trainer("shoal/CartPole-v1", run_dir=folder, total_steps=10**9, num_workers=0) as trainer:
            trainer.start()
            child = os.fork()  # it has the lock of the run open as well
            if child == 0:
                time.sleep(600)
            try:
                assert run(["trace", str(folder), "--seconds", "0.2", "--output", str(file)]) == 0
            finally:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        assert {"collect", "update", "infer"} <= {
            event["name"] for event in json.loads(file.read_text())["traceEvents"]
        }
        assert run(["trace", str(folder)]) == 1
        assert "nobody trains in" in capsys.readouterr().err


class TestExplain:
    def test_it_tells_of_each_part_of_training(self, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["bench", "--explain", "CartPole-v1", "--num-envs", "4", "--num-workers", "2", "--seconds", "0.5"]
        assert run([*arguments, "--json"]) == 0
        told = capsys.readouterr()
        said = json.loads(told.out)
        assert set(said["parts"]) >= {"env.step", "copy", "wake-up", "policy", "update"}
        assert all(seconds > 0 for name, seconds in said["parts"].items() if name != "other")
        assert sum(said["parts"].values()) == pytest.approx(said["seconds"], rel=0.05)
        assert said["program"] == "training with ppo" and "policy" in told.err

    def test_of_steps_alone_there_is_no_policy(self) -> None:
        with shoal.make_vec("CartPole-v1", 2, num_workers=1) as envs:
            envs.reset(seed=0)
            seen = breakdown(traced(lambda: [envs.step(np.zeros(2, np.int64)) for _ in range(50)]), os.getpid())
        parts = {part.name: part.seconds for part in seen.parts}
        assert seen.steps == 50 and parts["env.step"] > 0 and "policy" not in parts

    def test_a_worker_that_takes_its_callers_cpu_is_at_work_all_the_same(self) -> None:
        def spans_of(pid: int, **spans: tuple[int, int]) -> dict[str, Any]:
            return {
                "pid": pid,
                "span": np.array([_core.trace.SPANS.index(name.replace("_", ".")) for name in spans]),
                "thread": np.full(len(spans), pid),
                "start_ns": np.array([start for start, _ in spans.values()]),
                "duration_ns": np.array([duration for _, duration in spans.values()]),
            }

        caller = spans_of(1, step=(0, 100), wake=(10, 70), wait=(90, 10))
        worker = spans_of(2, worker_step=(20, 50), env_step=(25, 40))
        parts = {part.name: part.seconds * 1e9 for part in breakdown([caller, worker], 1).parts}
        assert parts == pytest.approx({"env.step": 40, "copy": 10, "wake-up": 30, "other": 20})

    def test_what_no_policy_fits_is_stepped(self, capsys: pytest.CaptureFixture[str]) -> None:
        gymnasium.register("Lines-v0", Lines)
        try:
            arguments = ["bench", "--explain", "Lines-v0", "--num-envs", "2", "--num-workers", "1", "--seconds", "0.2"]
            assert run([*arguments, "--json"]) == 0
        finally:
            gymnasium.registry.pop("Lines-v0")
        said = json.loads(capsys.readouterr().out)
        assert said["program"] == "stepping with actions that stay the same" and said["steps"] > 0

    @pytest.fixture
    def slow(self, tmp_path: Path) -> Iterator[Path]:
        """Slow-v0, which fails once there is this file."""
        fails = tmp_path / "fails"
        gymnasium.register("Slow-v0", Slow, kwargs={"fails": str(fails)})
        yield fails
        gymnasium.registry.pop("Slow-v0")

    def test_a_slow_environment_is_explained_by_a_whole_iteration(
        self, slow: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["bench", "--explain", "Slow-v0", "--num-envs", "8", "--num-workers", "2", "--seconds", "0.01"]
        assert run([*arguments, "--json"]) == 0
        told = capsys.readouterr()
        said = json.loads(told.out)
        assert "Slow-v0: trains for an iteration of 8 environments x 8 steps, and then for 0.01 s" in told.err
        assert said["steps"] < 512, "a rollout of the preset has 2,048"
        assert said["parts"]["update"] > 0 and said["parts"]["policy"] > 0

    def test_what_made_the_environment_fail_meanwhile_is_told(
        self, slow: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listen = Listener.listen

        def failing(self: Listener, seconds: float) -> bool:
            slow.touch()
            return listen(self, seconds)

        monkeypatch.setattr(Listener, "listen", failing)
        arguments = ["bench", "--explain", "Slow-v0", "--num-envs", "2", "--num-workers", "1", "--seconds", "0.5"]
        assert run(arguments) == 1
        told = capsys.readouterr()
        assert "the simulator is gone" in told.err and told.out == ""

    def test_it_is_of_one_environment(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", "--explain", "CartPole-v1", "--workload", "noop"]) == 2
        assert "shoal bench --explain does not take --workload" in capsys.readouterr().err

    def test_without_steps_there_is_nothing_to_tell(self) -> None:
        with pytest.raises(ValueError, match="has stepped no environments"):
            breakdown([], os.getpid())
