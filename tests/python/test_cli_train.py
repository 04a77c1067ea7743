"""`shoal train` and `shoal eval` on short real runs: what they print, write, and do when they are interrupted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import learn_envs
from cli_calls import assert_one_line
from shoal import learn
from shoal.cli import main
from shoal.cli.training import Terminated

SHORT = ["--total-steps", "512", "--num-envs", "4", "--quiet"]
SHORT += [
    f"--set={setting}"
    for setting in ("final_episodes=6", "eval_episodes=2", "eval_envs=2", "eval_every=256", "num_steps=32")
]


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Calls the command in an empty folder: status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a run that has ended. Not to be changed."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "shoal/CartPole-v1", *SHORT, "--seed", "3", "--run-dir", str(folder)]) == 0
    return folder


# --- what a run leaves and says


def test_it_says_what_came_of_it_and_how_to_go_on(shoal):
    status, out, err = shoal("train", "shoal/CartPole-v1", *SHORT)
    assert (status, err) == (0, "")
    assert re.match(
        r"shoal/CartPole-v1 trained for 512 steps in [\d.]+ s: mean return [\d.]+ ± [\d.]+ over 6 fresh episodes\n", out
    )
    (run,) = Path("runs").iterdir()
    assert f"results   {run}" in out
    assert f"evaluate  shoal eval {run}\n" in out


def test_it_names_the_command_as_it_was_called(shoal, monkeypatch):
    monkeypatch.setenv("SHOAL_COMMAND", "./shoal")
    assert "evaluate  ./shoal eval 'a run'\n" in shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", "a run")[1]


def test_a_run_leaves_a_curve_and_events(trained):
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")
    (events,) = trained.glob("events.out.tfevents.*")
    seen = scalars(events)
    for name in ("rollout/ep_rew_mean", "train/value_loss", "time/fps", "eval/mean_reward"):
        assert name in seen, name  # Stable-Baselines3's
    for name in ("charts/SPS", "losses/policy_loss"):
        assert name in seen, name  # CleanRL's
    assert seen["time/fps"] == [128, 256, 384, 512]


def test_a_run_of_a2c_leaves_the_same_goes_on_and_is_evaluated(shoal):
    told = [
        "--total-steps",
        "512",
        "--num-envs",
        "4",
        "--quiet",
        "--set",
        "final_episodes=2",
        "--set",
        "log_interval=5",
    ]
    paused = ["--run-dir", "run", "--set", "pause_at_step=100"]
    status, out, err = shoal("train", "shoal/CartPole-v1", "--algorithm", "a2c", *told, *paused)
    assert (status, err) == (0, "") and "stopped after 100 steps" in out
    assert_one_line(shoal("train", "--resume", "run", "--algorithm", "ppo"), 2, "is a run of a2c")
    status, out, err = shoal("train", "--resume", "run", "--quiet")
    assert (status, err) == (0, "") and "trained for 520 steps" in out
    assert Path("run/curve.png").read_bytes().startswith(b"\x89PNG")
    (first, *_) = [scalars(events) for events in sorted(Path("run").glob("events.out.tfevents.*"))]
    assert first["train/value_loss"] == [100]
    assert shoal("eval", "run", "--episodes", "2")[0] == 0


def test_overlap_is_a_flag_and_the_records_tell_the_lag(shoal):
    assert shoal("train", "shoal/CartPole-v1", *SHORT, "--overlap", "--run-dir", "run")[0] == 0
    (events,) = Path("run").glob("events.out.tfevents.*")
    assert scalars(events)["train/policy_lag"] == [128, 256, 384, 512]
    assert json.loads(Path("run/config.json").read_text())["config"]["overlap"] is True
    asked = ("train", "shoal/CartPole-v1", "--algorithm", "dqn", "--overlap")
    assert_one_line(shoal(*asked), 2, 'dqn has no option "overlap"')


def test_the_same_command_goes_on_with_its_run(shoal):
    for steps in ("256", "512"):
        again = (
            "train",
            "shoal/CartPole-v1",
            *SHORT,
            "--run-dir",
            "run",
            "--continue",
            "--set",
            f"pause_at_step={steps}",
        )
        assert shoal(*again)[0] == 0
    assert json.loads(Path("run/result.json").read_text())["steps"] == 512
    assert_one_line(shoal("train", "CartPole-v1", "--continue"), 2, "--continue goes with --run-dir")


def scalars(events: Path) -> dict[str, list[int]]:
    """The steps of every scalar of an event file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(events))
    accumulator.Reload()
    return {tag: [event.step for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_json_is_alone_on_stdout(shoal):
    status, out, err = shoal("train", "shoal/CartPole-v1", *SHORT, "--seed", "5", "--run-dir", "run", "--json")
    assert status == 0 and out.count("\n") == 1
    answer = json.loads(out)
    assert (answer["run_dir"], answer["env"], answer["seed"], answer["steps"]) == ("run", "shoal/CartPole-v1", 5, 512)
    assert answer["seconds"] > 0 and answer["mean_return"] > 0 and answer["wall_seconds"] > 0
    assert "evaluate  shoal eval run" in err


def test_a_python_environment_of_the_folder_is_trained_on(shoal, tmp_path):
    (tmp_path / "my_tasks.py").write_text(
        textwrap.dedent("""
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Task(CartPoleEnv):
                pass

            gymnasium.register("Mine-v0", Task, max_episode_steps=50)
        """)
    )
    status, _, err = shoal("train", "my_tasks:Mine-v0", *SHORT, "--num-workers", "2", "--run-dir", "run")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env"] == "my_tasks:Mine-v0"


def test_a_settings_file_is_taken_and_flags_win(shoal, tmp_path):
    (tmp_path / "run.toml").write_text(
        textwrap.dedent("""
            env = "shoal/CartPole-v1"
            seed = 8
            total_steps = 100000
            run_dir = "from the file"
            [rollout]
            num_steps = 16
            gamma = 0.9
            [evaluation]
            final_episodes = 2
        """)
    )
    assert shoal("train", "--config", "run.toml", "--total-steps", "256", "--set", "gamma=0.5", "-q")[0] == 0
    config = json.loads((tmp_path / "from the file" / "config.json").read_text())["config"]
    assert [config[name] for name in ("seed", "total_steps", "num_steps", "gamma", "final_episodes")] == [
        8,
        256,
        16,
        0.5,
        2,
    ]


def test_a_name_without_a_version_means_the_newest(shoal, tmp_path):
    assert shoal("train", "CartPole", *SHORT, "--num-workers", "1", "--run-dir", "run")[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["env"], config["preset"]) == ("CartPole-v1", "CartPole-v1")


def test_a_preset_is_taken(shoal, tmp_path):
    arguments = ["--preset", "cleanrl", "--total-steps", "512", "--set", "final_episodes=1", "-q", "--run-dir", "run"]
    assert shoal("train", "shoal/CartPole-v1", *arguments)[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"] == "cleanrl" and config["config"]["num_steps"] == 128


def test_without_a_terminal_progress_is_lines_on_stderr(shoal, monkeypatch):
    monkeypatch.setattr("shoal.cli.progress._LINE_EVERY", 0.0)
    arguments = [argument for argument in SHORT if argument != "--quiet"]
    status, out, err = shoal("train", "shoal/CartPole-v1", *arguments)
    assert status == 0
    assert re.search(r"^512 of 512 steps   [\d,]+/s   return [\d.]+", err, re.M)
    assert "of 512 steps" not in out


def test_on_a_terminal_progress_is_a_bar(tmp_path):
    arguments = [argument for argument in SHORT if argument != "--quiet"]
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "train", "shoal/CartPole-v1", *arguments],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other_end,
        text=True,
    )
    os.close(other_end)
    shown = read_terminal(terminal)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert "100%" in shown and "512 steps" in shown and "return" in shown and "left" in shown
    assert out.startswith("shoal/CartPole-v1 trained for 512 steps")


def read_terminal(descriptor: int) -> str:
    """What is written to a terminal until its last writer has left."""
    data = b""
    while True:
        try:
            data += os.read(descriptor, 65536)
        except OSError:  # EIO
            os.close(descriptor)
            return data.decode()


def starts(events: Path) -> list[int]:
    """The steps at which an event file says that a run was started anew."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    return [event.step for event in LegacyEventFileLoader(str(events)).Load() if event.HasField("session_log")]


OWN_MODULE = """
import torch
from torch.distributions import Categorical

class Straight(torch.nn.Module):
    def __init__(self, observation_space, action_space, width=4):
        super().__init__()
        self.body = torch.nn.Linear(observation_space.shape[0], width)
        self.head = torch.nn.Linear(width, int(action_space.n) + 1)

    def parts(self, obs):
        out = self.head(self.body(obs).tanh())
        return Categorical(logits=out[:, 1:]), out[:, 0]

    def forward(self, obs):
        chosen, value = self.parts(obs)
        action = chosen.sample()
        return action, chosen.log_prob(action), value

    def evaluate_actions(self, obs, action):
        chosen, value = self.parts(obs)
        return chosen.log_prob(action), value, chosen.entropy()
"""


def test_a_module_of_ones_own_is_trained_evaluated_and_resumed(shoal, tmp_path):
    (tmp_path / "straight_network.py").write_text(OWN_MODULE)
    own = ["--policy", "straight_network:Straight(width=6)", "--device", "cpu"]
    status, out, err = shoal(
        "train", "shoal/CartPole-v1", *SHORT, *own, "--set", "pause_at_step=128", "--run-dir", "run"
    )
    assert (status, err) == (0, "")
    assert "stopped after 128 steps" in out
    status, out, err = shoal("train", "--resume", "run", "--set", "pause_at_step=null", "--quiet")
    assert (status, err) == (0, "")
    status, out, err = shoal("eval", "run", "--episodes", "3")
    assert (status, err) == (0, "")
    assert "over 3 episodes" in out
    train = ["train", "shoal/CartPole-v1", *SHORT]
    assert_one_line(shoal(*train, "--policy", "straight_network:Strait"), 2, "did you mean 'Straight'?")
    assert_one_line(shoal(*train, *own[:2], "--device", "cuda:77"), 2, "device='cpu' is always there")


# --- wrong use


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--set", "gama=0.9"], ["gama", "gamma"]),
        (["--set", "gamma=7"], ["gamma", "7"]),
        (["--set", "gamma=high"], ["gamma"]),
        (["--preset", "cleanlr"], ["cleanlr", "cleanrl"]),
        (["--algorithm", "pp"], ["no algorithm 'pp'", "did you mean ppo?"]),
        (["--algorithm", "a2c", "--set", "epochs=3"], ["a2c has no option", "epochs"]),
        (["--set", "resume=true"], ["--resume is a flag"]),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest(shoal, arguments, parts):
    assert_one_line(shoal("train", "shoal/CartPole-v1", *arguments), 2, *parts)
    assert not Path("runs").exists()


def test_an_option_without_its_value_is_not_called_unknown(shoal):
    assert_one_line(
        shoal("train", "shoal/CartPole-v1", "--run-dir"),
        2,
        "option '--run-dir' requires an argument (shoal train --help",
    )
    assert_one_line(
        shoal("train", "shoal/CartPole-v1", "--run-dri", "x"), 2, "no such option", "did you mean --run-dir?"
    )


def test_an_environment_that_is_not_registered_says_how_it_becomes_one(shoal, tmp_path):
    (tmp_path / "own_tasks.py").write_text("class Task: pass\n")
    registers = "gymnasium.register('Task-v0', entry_point='own_tasks:Task')"
    assert_one_line(shoal("train", "own_tasks:Task"), 2, registers, "own_tasks:Task-v0")
    assert_one_line(shoal("train", "own_tasks:Other-v0"), 2, "register('Other-v0', entry_point='own_tasks:CLASS')")
    assert_one_line(shoal("train", "mine/Walk-v0"), 2, "one of a plug-in needs --plugin")


def test_a_folder_that_holds_a_run_is_not_trained_into(shoal, trained):
    assert_one_line(
        shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", trained),
        2,
        "already holds a run",
        f"shoal train --resume {trained}",
    )


def test_a_folder_that_cannot_be_made_is_named(shoal, tmp_path):
    (tmp_path / "file").touch()
    assert_one_line(shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", "file/run"), 1, "file/run")


def test_an_environment_that_fails_shows_its_own_traceback(shoal, tmp_path):
    (tmp_path / "bad_tasks.py").write_text(
        textwrap.dedent("""
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Bad(CartPoleEnv):
                def step(self, action):
                    raise KeyError("the lost key")

            gymnasium.register("Bad-v0", Bad)
        """)
    )
    status, out, err = shoal("train", "bad_tasks:Bad-v0", *SHORT)
    assert (status, out) == (1, "")
    assert 'raise KeyError("the lost key")' in err and "bad_tasks.py" in err
    assert err.splitlines()[-1].startswith("shoal: KeyError: 'the lost key'")
    assert "shoal/cli" not in err


def test_a_folder_that_cannot_be_written_is_said_with_the_remedy(shoal, monkeypatch, trained):
    def refused(*_, **__):
        raise OSError(errno.EROFS, "cannot open run/lock: Read-only file system (errno 30)")

    monkeypatch.setattr("shoal.learn.Trainer", refused)
    status, _, err = shoal("train", "shoal/CartPole-v1", *SHORT)
    assert status == 1 and "Read-only" in err  # this folder can be written: what failed is told as it is
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: mode == os.R_OK and access(path, mode))
    train = ["train", "shoal/CartPole-v1", *SHORT]
    assert_one_line(shoal(*train), 1, "cannot write to 'runs': permission denied; name another folder by --run-dir")
    assert_one_line(shoal(*train, "--run-dir", "a/b"), 1, "cannot write to 'a/b'")
    assert_one_line(shoal("train", "--resume", trained), 1, "make it writable, or copy it")
    assert_one_line(shoal("export", trained, "--to", "onnx"), 1, "permission denied; name a file elsewhere by --output")
    assert_one_line(shoal("eval", trained, "--gif", "x.gif"), 1, "cannot write 'x.gif'")


# --- interruption


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


def test_further_sigterms_do_not_disturb_the_first(tmp_path):
    (tmp_path / "waiting_task.py").write_text(WAITING)
    for name in ("stepped", "go on"):
        os.mkfifo(tmp_path / name)
    arguments = ["train", "waiting_task:Waiting-v0", *SHORT, "--num-workers", "0", "--run-dir", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        (tmp_path / "stepped").open().close()  # waits until it is
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.readline() == "stopping after this iteration …\n"
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go on").open("w").close()
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (143, "")
    assert err == "shoal: stopped after 128 steps; go on with:  shoal train --resume run\n"


def test_a_sigterm_beside_the_iterations_is_told_alike(shoal, monkeypatch):
    def terminated(*_):
        raise Terminated

    train = ["train", "shoal/CartPole-v1", *SHORT, "--run-dir", "run"]
    with monkeypatch.context() as patched:
        patched.setattr("shoal.learn.Trainer.start", terminated)
        assert_one_line(shoal(*train), 143, "shoal: stopped before the first step\n")
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
        learn_envs.Drift, run_dir="run", total_steps=64, num_envs=2, num_steps=16, num_workers=0, pause_at_step=32
    )
    named = "trained on Drift, which is not an id: name one,  shoal train MODULE:ID --resume run\n"
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


def test_resuming_before_the_first_checkpoint_says_how_to_begin_anew(shoal, trained):
    Path("run").mkdir()
    Path("run/config.json").write_bytes((trained / "config.json").read_bytes())
    anew = "shoal train shoal/CartPole-v1 --run-dir run --set save_every_seconds=10"
    parts = ["ended before its first checkpoint", "save_every_seconds (60) seconds", anew]
    assert_one_line(shoal("train", "--resume", "run"), 2, *parts)
    with Path("run/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_one_line(shoal("train", "--resume", "run"), 2, "another process is training in 'run'")


# --- eval


def test_eval_says_how_good_the_policy_is(shoal, trained):
    status, out, err = shoal("eval", trained, "--episodes", "7")
    assert (status, err) == (0, "")
    assert re.fullmatch(r"shoal/CartPole-v1: mean return [\d.]+ ± [\d.]+ over 7 episodes\n", out)


def test_eval_json_is_alone_on_stdout_and_the_same_each_time(shoal, trained):
    answers = []
    for workers in ("1", "2"):
        status, out, _ = shoal("eval", trained, "--episodes", "8", "--seed", "11", "--num-workers", workers, "--json")
        assert status == 0 and out.count("\n") == 1
        answers.append(json.loads(out))
    assert answers[0] == answers[1]
    assert answers[0]["episodes"] == 8 and answers[0]["mean_return"] > 0 and answers[0]["std_return"] >= 0


def test_eval_of_a_native_policy_on_gymnasiums_twin_is_the_same(shoal, trained):
    native, twin = (
        json.loads(shoal("eval", trained, "--episodes", "8", "--json", *more)[1])
        for more in ([], ["--env", "CartPole-v1"])
    )
    assert native["mean_return"] == twin["mean_return"]


def test_eval_draws_an_episode(shoal, trained, tmp_path):
    from PIL import Image

    status, out, err = shoal("eval", trained, "--episodes", "1", "--gif", "episode.gif")
    assert (status, err) == (0, "")
    assert re.search(r"episode.gif   an episode of return ([\d.]+)\n", out)
    with Image.open(tmp_path / "episode.gif") as image:
        assert image.n_frames > 5 and image.size == (600, 400)


def test_eval_says_that_drawing_lacks_a_package_before_it_plays(shoal, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr("shoal.learn.evaluate", lambda *_, **__: pytest.fail("it has played"))
    assert_one_line(shoal("eval", trained, "--gif", "x.gif"), 1, "drawing needs another package", "classic-control")


def test_eval_of_wrong_things_is_one_line(shoal, trained, tmp_path):
    assert_one_line(shoal("eval", "nowhere"), 2, "there is no folder 'nowhere'")
    assert_one_line(shoal("eval", trained, "--checkpoint", "bets"), 2, "best or last", "did you mean best?")
    assert_one_line(shoal("eval", trained, "--gif", "no/x.gif"), 2, "no folder 'no'")
    assert_one_line(shoal("eval", trained, "--env", "Pendulum-v1"), 1, "the policy was trained with")
    assert_one_line(shoal("eval", trained, "--episodes", "0"), 2, "--episodes")


def test_eval_of_a_damaged_checkpoint_says_so(shoal, trained, tmp_path):
    import shutil

    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    for file in run.glob("checkpoints/*/policy.safetensors"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    assert_one_line(shoal("eval", run), 1, "policy.safetensors")


def test_eval_before_the_first_checkpoint_says_so(shoal, tmp_path, trained):
    run = tmp_path / "young"
    run.mkdir()
    (run / "config.json").write_bytes((trained / "config.json").read_bytes())
    assert_one_line(shoal("eval", run), 1, "holds no policy")


# --- several processes


def test_several_processes_train_as_one(shoal) -> None:
    status, out, _ = shoal(
        "train", "shoal/CartPole-v1", *SHORT, "--nproc", "2", "--num-workers", "0", "--run-dir", "run"
    )
    assert status == 0
    assert re.search(r"trained for 512 steps in [\d.]+ s on 2 ranks: ", out)
    dqn = ("--algorithm", "dqn", "--set=learning_starts=100")
    refused = shoal("train", "shoal/CartPole-v1", *SHORT, "--nproc", "2", *dqn, "--run-dir", "other")
    assert_one_line(refused, 2, "dqn does not learn on 2 ranks together; ppo and a2c do")
