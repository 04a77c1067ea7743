"""`shoal stat` of training runs: which go on, how far they are, and how they ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.stat import processes, snapshot
from shoal.stat.family import family
from stat_watching import BOUND, Failing, Stat, Waiting, mine, program, until


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

            def stepping() -> set[int]:
                """The run's actors that step: the first may be done with steps before the second begins."""
                whole = json.loads(stat("--json")[1])["environments"]
                own = {each["pid"] for each in whole if processes.parent_of(each["pid"]) != os.getpid()}
                return own & family(made.pid) - {made.pid}

            until(lambda: len(stepping()) == 2)
            actors = stepping()
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
        assert (seen["state"], seen["steps"], seen["steps_per_second"]) == ("damaged", 5, 2.5)
        assert (seen["error"], seen["ending"]) == ("result.json cannot be read", None)
        assert " damaged: result.json cannot be read " in stat(str(folder))[1]
        for content, said in (
            ("{}", "config.json' was not written by Shoal"),
            ("{", "config.json' is damaged: "),
            (None, "is not the folder of a run: it has no config.json"),
        ):
            (folder / "config.json").unlink()
            if content is not None:
                (folder / "config.json").write_text(content)
            status, shown, error = stat(str(folder))
            assert (status, shown) == (1, "") and said in error and error.count("\n") == 1

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
