"""`shoal train` that is interrupted, and what goes on with a run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import learn_envs
from cli_calls import SHORT, assert_one_line, caller, trained_run
from shoal import learn
from shoal.cli.training import Terminated


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Calls the command in an empty folder: status, stdout, stderr."""
    return caller(capsys, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a run that has ended. Not to be changed."""
    return trained_run(tmp_path_factory.mktemp("trained"))


def starts(events: Path) -> list[int]:
    """The steps at which an event file says that a run was started anew."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return [event.step for event in LegacyEventFileLoader(str(events)).Load() if event.HasField("session_log")]


@pytest.mark.parametrize(
    ("sent", "status", "to"),
    [(signal.SIGINT, 130, "the group"), (signal.SIGTERM, 143, "the process"), (signal.SIGTERM, 143, "the group")],
)
def test_a_signal_stops_with_a_checkpoint_and_the_command_to_resume(tmp_path, sent, status, to):
    command = [sys.executable, "-m", "shoal.cli", "train"]
    arguments = ["CartPole-v1", "--total-steps", "100000000", "--num-workers", "2", "--run-dir", "run"]
    arguments += ["--set", "target_return=null", "--set", "eval_every=0", "--json"]
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    progress = tmp_path / "run" / "progress.jsonl"
    deadline = time.monotonic() + 60
    while not (progress.exists() and progress.stat().st_size) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # A terminal and `timeout` send it to the group.
    (os.killpg if to == "the group" else os.kill)(process.pid, sent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, ""), err
    assert re.fullmatch(
        r"stopping after this iteration …\nshoal: stopped after [\d,]+ steps; go on with:  shoal train --resume run\n",
        err,
    ), err
    stopped_at = json.loads((tmp_path / "run/checkpoints/last/state.json").read_text())
    assert stopped_at["format"] == "shoal.checkpoint"
    assert list((tmp_path / "run").glob("events.out.tfevents.*"))


WAITING = """
import gymnasium
import learn_envs


class Waiting(learn_envs.Drift):
    # Says once that it is stepped, and goes on when it is told to.

    has_waited = False

    def step(self, action):
        if not Waiting.has_waited:
            Waiting.has_waited = True
            open("stepped", "w").close()
            open("go on").close()
        return super().step(action)


gymnasium.register("Waiting-v0", Waiting)
"""


def terminated_in_a_step(folder: Path, text: str, *more: str) -> str:
    """Sends SIGTERM twice to `shoal train` while WAITING, changed to `text`, waits; what it said then."""
    (folder / "waiting_task.py").write_text(text)
    for name in ("stepped", "go on"):
        os.mkfifo(folder / name)
    arguments = ["train", "waiting_task:Waiting-v0", *SHORT, "--num-workers", "0", "--run-dir", "run", *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        (folder / "stepped").open().close()  # waits until it is
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline() == "stopping after this iteration …\n"
        process.send_signal(signal.SIGTERM)
        (folder / "go on").open("w").close()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (143, "")
    return err


def test_further_sigterms_do_not_disturb_the_first(tmp_path):
    err = terminated_in_a_step(tmp_path, WAITING)
    assert err == "shoal: stopped after 128 steps; go on with:  shoal train --resume run\n"


def test_a_last_evaluation_that_a_signal_ends_is_no_success(tmp_path):
    late = WAITING.replace("has_waited = False", "has_waited, steps = False, 0").replace(
        "        if not Waiting.has_waited:", "        Waiting.steps += 1\n        if Waiting.steps == 512 + 3:"
    )
    err = terminated_in_a_step(tmp_path, late, "--set", "eval_every=0")
    again = "shoal eval run --episodes 6"
    assert err == f"shoal: stopped in the last evaluation; all 512 steps are made. Evaluate by:  {again}\n"


def test_a_sigterm_beside_the_iterations_is_told_alike(shoal, monkeypatch):
    def terminated(*_):
        raise Terminated

    train = ["train", "shoal/CartPole-v1", *SHORT, "--run-dir", "run"]
    with monkeypatch.context() as patched:
        patched.setattr("shoal.learn.Trainer.start", terminated)
        assert_one_line(shoal(*train), 143, "shoal: stopped before the first step\n")

    def terminated_without_a_checkpoint(*_):
        shutil.rmtree("run/checkpoints")
        terminated()

    with monkeypatch.context() as patched:
        patched.setattr("shoal.cli.events.EventLog.close", terminated_without_a_checkpoint)
        assert_one_line(shoal(*train), 143, "shoal: stopped before the first checkpoint\n")
    monkeypatch.setattr("shoal.cli.events.EventLog.close", terminated)
    assert_one_line(shoal(*train), 143, "shoal: stopped; go on with:  shoal train --resume run\n")


def test_a_run_that_begins_in_the_folder_of_a_killed_one_has_its_own_events_alone(shoal, tmp_path):
    train = ["train", "shoal/CartPole-v1", *SHORT, "--run-dir", "run"]
    Path("run").mkdir()
    Path("run/events.out.tfevents.others").touch()
    for number in range(2):
        assert shoal(*train)[0] == 0
        names = [path.name for path in Path("run").glob("events.out.tfevents.*")]
        assert len(names) == 2 - number and ("events.out.tfevents.others" in names) == (number == 0)
        shutil.rmtree("run/checkpoints/last")  # as of one that was killed before it was written


def test_a_run_on_no_id_is_resumed_on_one_that_is_named(shoal, tmp_path):
    learn.train(
        lambda: learn_envs.Drift(),
        run_dir="run",
        total_steps=64,
        num_envs=2,
        num_steps=16,
        num_workers=0,
        pause_at_step=32,
    )
    named = "neither an id nor found by an import path: name an id,  shoal train MODULE:ID --resume run\n"
    assert_one_line(shoal("train", "--resume", "run"), 2, named)
    (tmp_path / "drift_task.py").write_text(
        "import gymnasium, learn_envs\ngymnasium.register('Drift-v0', learn_envs.Drift)\n"
    )
    resumed = shoal("train", "drift_task:Drift", "--resume", "run", "--num-workers", "0", "--json", "-q")
    assert resumed[0] == 0, resumed[2]
    assert json.loads(resumed[1])["steps"] == 64
    shutil.rmtree("run/checkpoints/last")
    resumed = shoal("train", "drift_task:Drift", "--resume", "run")
    assert_one_line(resumed, 2, "start it anew", "shoal train drift_task:Drift-v0 --run-dir run")


def test_a_run_on_a_class_finds_it_again(shoal):
    learn.train(
        learn_envs.Drift, run_dir="run", total_steps=64, num_envs=2, num_steps=16, num_workers=0, pause_at_step=32
    )
    resumed = shoal("train", "--resume", "run", "--num-workers", "0", "--json", "-q")
    assert resumed[0] == 0, resumed[2]
    assert json.loads(resumed[1])["steps"] == 64
    code, told, _ = shoal("eval", "run", "--episodes", "2", "--num-workers", "0")
    assert code == 0 and told.startswith("Drift: mean return")
    assert_one_line(shoal("eval", "run", "--gif", "a.gif"), 2, "--gif draws what has one: give it by --env\n")
    shutil.rmtree("run/checkpoints")
    assert_one_line(shoal("train", "--resume", "run"), 2, "start it anew, in Python, with the arguments that it had\n")


def test_resume_takes_its_environment_as_a_new_run_does(shoal):
    train = ["--run-dir", "run", "--num-workers", "0", "--set", "pause_at_step=128"]
    assert shoal("train", "CartPole-v1", *SHORT, *train)[0] == 0
    status, out, err = shoal("train", "CartPole", "--resume", "run", "--num-workers", "0", "--json", "-q")
    assert status == 0, err
    assert json.loads(out)["steps"] == 512


def test_a_paused_run_goes_on(shoal, tmp_path):
    status, out, _ = shoal("train", "shoal/CartPole-v1", *SHORT, "--set", "pause_at_step=256", "--run-dir", "run")
    assert status == 0 and "go on     shoal train --resume run\n" in out
    status, out, err = shoal("train", "--resume", "run", "--json", "--quiet")
    assert status == 0, err
    assert json.loads(out)["steps"] == 512
    first, second = sorted((tmp_path / "run").glob("events.out.tfevents.*"), key=lambda file: file.stat().st_mtime_ns)
    assert starts(first) == [] and starts(second) == [256]  # from where TensorBoard drops what the first file has
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/progress.jsonl").read_text().splitlines()]
    assert steps == sorted(steps) and steps[-1] == 512


def test_resume_refuses_another_environment_and_folder(shoal, trained, tmp_path):
    assert_one_line(shoal("train", "Pendulum-v1", "--resume", trained), 2, "is a run on shoal/CartPole-v1")
    assert_one_line(shoal("train", "--resume", trained, "--run-dir", "x"), 2, "leave out --run-dir")
    assert_one_line(shoal("train", "--resume", "nowhere"), 2, "there is no folder 'nowhere'")


def test_a_checkpoint_to_resume_is_told_as_one_of_its_run(shoal, trained):
    checkpoint = trained / "checkpoints/last"
    said = f"'{checkpoint}' is a checkpoint: name the folder of its run, {trained}\n"
    assert_one_line(shoal("train", "--resume", checkpoint), 1, said)


def test_resuming_what_is_over_says_so(shoal):
    train = ["shoal/CartPole-v1", *SHORT, "--run-dir", "run"]
    assert shoal("train", *train, "--set", "target_return=1", "--set", "eval_every=128")[0] == 0
    status, out, err = shoal("train", "--resume", "run", "--total-steps", "1024", "--quiet")
    first, second = out.splitlines()[:2]
    assert (status, err) == (0, "") and "reached its target_return already" in first, out
    assert "--set target_return=null" in first and "reached its target after" in second
    status, out, _ = shoal("train", "--resume", "run", "--total-steps", "1024", "--set", "target_return=null", "-q")
    assert status == 0 and "already" not in out and "trained for 1,024 steps" in out
    status, out, err = shoal("train", "--resume", "run", "--json", "--quiet")
    assert status == 0 and json.loads(out)["steps"] == 1024
    assert err.startswith("The run had made its 1,024 steps already")
    assert err.splitlines()[0].endswith(":  shoal train --resume run --total-steps 2048")


def test_a_run_that_goes_on_as_it_was_told_names_what_it_leaves_out(shoal, caplog):
    train = ["shoal/CartPole-v1", *SHORT, "--run-dir", "run", "--continue", "--quiet", "--reward-clip=-1,1"]
    for again in range(2):
        assert shoal("train", *train)[0] == 0
        assert not caplog.messages, again
    others = ["--total-steps", "4096", "--preset", "cleanrl_cartpole", "--max-episode-steps", "20"]
    status, out, _ = shoal("train", *train, *others)
    assert status == 0 and "--resume run --total-steps" in out
    (told,) = caplog.messages
    assert (
        "total_steps=512 and not 4096, preset=CartPole-v1 and not cleanrl_cartpole, max_episode_steps= as it was"
        in told
    )
    assert "--resume RUN changes" in told


def test_resuming_before_the_first_checkpoint_says_how_to_begin_anew(shoal, trained):
    Path("run").mkdir()
    Path("run/config.json").write_bytes((trained / "config.json").read_bytes())
    anew = "shoal train shoal/CartPole-v1 --run-dir run --set save_every_seconds=10"
    parts = ["ended before its first checkpoint", "save_every_seconds (60) seconds", anew]
    assert_one_line(shoal("train", "--resume", "run"), 2, *parts)
    with Path("run/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_one_line(shoal("train", "--resume", "run"), 2, "another process is training in 'run'")
