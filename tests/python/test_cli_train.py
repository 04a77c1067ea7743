"""`shoal train` on short real runs: what they print and write, and what is wrong use."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import pty
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cli_calls import SHORT, assert_one_line, caller, trained_run
from shoal.cli.progress import Lines
from shoal.cli.settings import from_file
from shoal.learn.config import rounded_steps


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Calls the command in an empty folder: status, stdout, stderr."""
    return caller(capsys, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of a run that has ended. Not to be changed."""
    return trained_run(tmp_path_factory.mktemp("trained"))


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


LEAVES = """
import os
import gymnasium

class Leaves(gymnasium.Wrapper):
    def reset(self, **arguments):
        os.chdir("/")
        return self.env.reset(**arguments)
"""


def test_a_run_is_whole_where_an_environment_changes_the_working_directory(shoal, tmp_path):
    (tmp_path / "leaving.py").write_text(LEAVES)
    words = ["--num-workers", "0", "--wrapper", "leaving:Leaves", "--run-dir", "run"]
    status, out, err = shoal("train", "CartPole-v1", *SHORT, *words)
    assert (status, err) == (0, "") and "results   run   curve run/curve.png" in out
    files = {path.name.partition(".out.")[0] for path in (tmp_path / "run").iterdir()}
    left = {"checkpoints", "config.json", "curve.png", "events", "lock", "progress.jsonl", "result.json"}
    assert files == left


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


def test_a_settings_file_says_null_by_a_word(tmp_path):
    text = 'target_return = "none"\npause_at_step = "NULL"\noverlap = "true"\nrun_dir = "none"\n[env_kwargs]\nwind = "none"\n'
    (tmp_path / "run.toml").write_text(text)
    assert from_file(tmp_path / "run.toml") == {
        "target_return": None,
        "pause_at_step": None,
        "overlap": True,
        "run_dir": "none",  # a name
        "env_kwargs": {"wind": "none"},  # the environment's
    }


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


def test_lines_of_progress_say_that_a_run_evaluates(monkeypatch, capsys):
    """Evaluations of an environment without a time limit take minutes, in which no step is made."""
    monkeypatch.setattr("shoal.cli.progress._LINE_EVERY", 0.0)
    lines = Lines(512)
    for phase in ("training", "evaluating"):
        lines.show({"step": 256, "phase": phase, "steps_per_second": 1000.0, "ep_return_mean": 20.0, "entropy": 0.5})
    assert capsys.readouterr().err.splitlines() == [
        "256 of 512 steps   1,000/s   return 20.0   entropy 0.5",
        "256 of 512 steps   1,000/s   return 20.0   evaluating …   entropy 0.5",
    ]


def test_steps_that_are_rounded_up_to_whole_iterations_are_told_at_the_start(shoal, caplog):
    caplog.set_level(logging.INFO, "shoal.learn")
    settings = ["--num-envs", "8", "--set", "num_steps=16", "--set", "final_episodes=1", "--run-dir", "run"]
    settings += ["--set", "target_return=null"]
    status, out, err = shoal("train", "shoal/CartPole-v1", "--total-steps", "300", *settings)
    told = (
        "total_steps=300 ends within an iteration, which is num_envs=8 times num_steps=16 steps; "
        "the run makes whole ones, at most 384 steps"
    )
    assert status == 0 and err.splitlines()[0] == told and [record.getMessage() for record in caplog.records] == [told]
    assert out.startswith("shoal/CartPole-v1 trained for 384 steps")
    status, out, err = shoal("train", "--resume", "run", "--total-steps", "512")
    assert status == 0 and "whole ones" not in err and "trained for 512 steps" in out
    status, out, err = shoal(
        "train", "--resume", "run", "--total-steps", "900", "--quiet", "--set", "pause_at_step=641"
    )
    assert status == 0 and "whole ones" not in err and "stopped after 768 steps" in out
    caplog.clear()
    status, out, err = shoal("train", "--resume", "run")
    assert status == 0 and "whole ones" not in err and not caplog.records and "trained for 1,024 steps" in out


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({}, "at most 2,048 steps"),
        ({"total_steps": 2048}, None),
        ({"total_steps": 1}, "at most 64 steps"),
        ({"algorithm": "a3c"}, None),
        ({"sync_fraction": 0.5}, None),
    ],
)
def test_what_is_said_of_rounding_is_what_a_run_does(changed, end):
    config = {"algorithm": "ppo", "total_steps": 2000, "num_envs": 2, "num_steps": 32, "sync_fraction": 1.0, **changed}
    told = rounded_steps(config, ["num_steps"])
    assert told is None if end is None else told.endswith(end)
    assert rounded_steps(config, ["num_steps"], made=5000) is None
    assert rounded_steps(config, ["seed"]) is None


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


def test_what_the_constructor_of_a_module_raises_is_said_of_the_module(shoal, tmp_path, monkeypatch):
    (tmp_path / "wrong_network.py").write_text(
        textwrap.dedent("""
            import torch

            class Wrong(torch.nn.Module):
                def __init__(self, observation_space, action_space, sides=2):
                    super().__init__()
                    if sides < 0:
                        raise ValueError("no such sides") from KeyError(sides)
                    self.body = torch.nn.Linear(3, 4, biass=False)
        """)
    )
    train = ["train", "shoal/CartPole-v1", *SHORT, "--policy"]
    unknown = "TypeError: Linear.__init__() got an unexpected keyword argument 'biass'"
    assert_one_line(shoal(*train, "wrong_network:Wrong"), 2, f"shoal: --policy wrong_network:Wrong: {unknown}")
    sides = "wrong_network:Wrong(sides=-1)"
    assert_one_line(shoal(*train, sides), 2, f"shoal: --policy {sides}: ValueError: no such sides")
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")
    status, _, err = shoal(*train, "wrong_network:Wrong")
    assert status == 2 and "self.body = torch.nn.Linear(3, 4, biass=False)" in err
    assert err.splitlines()[-1].endswith(unknown)


# --- wrong use


def test_an_argument_that_an_environment_does_not_know_is_said_of_its_flag(shoal, tmp_path):
    (tmp_path / "strict_tasks.py").write_text(
        textwrap.dedent("""
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Strict(CartPoleEnv):
                def __init__(self, inner=0):
                    super().__init__(sloppy=True) if inner else super().__init__()

            gymnasium.register("Strict-v0", lambda **kwargs: Strict(**kwargs))
            gymnasium.register("Plain-v0", Strict)
        """)
    )
    train = ["train", "strict_tasks:Strict-v0", *SHORT, "--num-workers", "0", "--env-kwargs"]
    assert_one_line(shoal(*train, "wide=1"), 2, "shoal: --env-kwargs: strict_tasks:Strict-v0 takes no 'wide'\n")
    train[1] = "strict_tasks:Plain-v0"
    assert_one_line(shoal(*train, "wide=1"), 2, "strict_tasks:Plain-v0 takes no 'wide'; it takes inner\n")
    assert_one_line(shoal(*train, "iner=1"), 2, "strict_tasks:Plain-v0 takes no 'iner'; did you mean inner?\n")
    train[1] = "strict_tasks:Strict-v0"
    status, _, err = shoal(*train, "inner=1")
    assert status != 0 and "--env-kwargs" not in err
    assert "CartPoleEnv.__init__() got an unexpected keyword argument 'sloppy'" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("env=5", "env takes an id such as CartPole-v1, not 5"),
        ("config=5", "config takes the path of a file, not 5"),
        ("preset=[1]", "preset takes the name of a preset, not [1]"),
        ("run_dir=5", "run_dir takes the path of a folder, not 5"),
        ("num_workers=x", "num_workers takes a whole number, not 'x'"),
        ("wrappers=mine:Own", """wrappers takes a list such as ["module:Name"], not 'mine:Own'"""),
    ],
)
def test_a_value_of_the_wrong_kind_is_one_line(shoal, setting, said):
    env = [] if setting.startswith("env") else ["shoal/CartPole-v1"]
    assert_one_line(shoal("train", *env, "--set", setting), 2, f"shoal: {said}\n")
    assert not Path("runs").exists()


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


@pytest.mark.parametrize("saved", [False, True])
def test_a_folder_that_is_trained_in_is_not_trained_into(shoal, trained, tmp_path, saved):
    (tmp_path / "run").mkdir()
    if saved:
        shutil.copytree(trained, tmp_path / "run", dirs_exist_ok=True)
    said = "another process is training in 'run'"
    with (tmp_path / "run/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", "run")
        assert_one_line(result, 2 if saved else 1, f"shoal: {said}: name another --run-dir\n")
        if saved:
            assert_one_line(shoal("train", "--resume", "run"), 1, f"shoal: {said}: wait for its end\n")


def test_a_folder_that_cannot_be_made_is_named(shoal, tmp_path):
    (tmp_path / "file").touch()
    assert_one_line(shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", "file/run"), 1, "file/run")
    said = "shoal: cannot write to 'file': it is no folder; name another folder by --run-dir\n"
    assert_one_line(shoal("train", "shoal/CartPole-v1", *SHORT, "--run-dir", "file"), 1, said)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
@pytest.mark.parametrize("where", [[], ["--num-workers", "0"]])
@pytest.mark.parametrize("fails_in", ["step", "reset", "__init__"])
def test_an_environment_that_fails_shows_its_own_traceback(shoal, tmp_path, fails_in, where):
    (tmp_path / "bad_tasks.py").write_text(
        textwrap.dedent("""
            import gymnasium
            from gymnasium.envs.classic_control import CartPoleEnv

            class Bad(CartPoleEnv):
                def FAILS_IN(self, *_, **__):
                    raise ValueError("the lost key")

            gymnasium.register("Bad-v0", Bad)
        """).replace("FAILS_IN", fails_in)
    )
    status, out, err = shoal("train", "bad_tasks:Bad-v0", *SHORT, *where)
    assert (status, out) == (1, "")
    assert 'raise ValueError("the lost key")' in err and "bad_tasks.py" in err
    assert "environment 0" in err
    assert err.splitlines()[-1] == "shoal: ValueError: the lost key"
    assert "shoal/cli" not in err and "shoal/learn" not in err


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
