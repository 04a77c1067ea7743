"""The `shoal` command apart from training: right use, and one clear line for every wrong one."""

from __future__ import annotations

import errno
import importlib
import inspect
import json
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cli_calls import assert_one_line
from shoal import __version__
from shoal.cli import environments, main
from shoal.cli.test_command import SANITIZERS
from shoal.cli.training import Terminated


@pytest.fixture
def shoal(capsys, tmp_path, monkeypatch):
    """Calls the command in an empty folder: status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call


def run_of(folder: Path, records: list[dict]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"format": "shoal.run", "version": 1, "config": {}}))
    (folder / "progress.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


# --- the command itself


def test_help_names_every_command(shoal):
    status, out, _ = shoal("--help")
    assert status == 0
    for command in importlib.import_module("shoal.cli.app").listed_commands():
        assert f" {command} " in out


@pytest.mark.parametrize(
    "command", ["train", "collect", "eval", "plot", "envs", "doctor", "stat", "bench", "test", "lint", "docs"]
)
def test_every_command_has_help(shoal, command):
    status, out, err = shoal(command, "--help")
    assert (status, err) == (0, "")
    assert f"shoal {command}" in out


@pytest.mark.parametrize(
    "command", ["train", "collect", "eval", "plot", "envs", "doctor", "stat", "bench", "test", "lint", "docs"]
)
def test_help_shows_every_word_of_it(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    app = importlib.import_module("shoal.cli.app").app
    module = importlib.import_module(f"shoal.cli.{command}_command")
    callbacks = [info.callback for info in app.registered_commands if info.callback.__module__ == module.__name__]
    shown = subprocess.run(
        [sys.executable, "-m", "shoal.cli", command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    shown = " ".join(shown.split())
    for callback in callbacks:
        assert inspect.getdoc(callback).partition("\n")[0] in shown
        options = [parameter.default for parameter in inspect.signature(callback).parameters.values()]
        for option in options:
            text = (option.help or "").replace(r"\[", "[")
            assert text in shown, f"{text!r} is not shown"


def test_without_arguments_it_shows_its_help(shoal):
    status, out, err = shoal()
    assert (status, err) == (0, "")
    assert "Usage: shoal" in out


def test_version(shoal):
    assert shoal("--version") == (0, f"{__version__}\n", "")


def test_the_function_is_still_there_when_it_was_called():
    import shoal.cli

    shoal.cli.main(["--version"])
    assert callable(shoal.cli.main)


def test_starts_without_heavy_modules():
    code = textwrap.dedent("""
        import sys
        from shoal.cli import main
        main(["train", "--help"])
        heavy = {"torch", "numpy", "gymnasium", "matplotlib", "tensorboard", "shoal._core", "shoal._learn"}
        sys.exit(", ".join(heavy & set(sys.modules)) or 0)
    """)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_a_wrong_command_names_the_nearest(shoal):
    assert_one_line(shoal("trian", "CartPole-v1"), 2, "no such command 'trian'", "did you mean train?")


def test_a_wrong_flag_names_the_nearest(shoal):
    assert_one_line(
        shoal("train", "CartPole-v1", "--total-step", "9"), 2, "--total-step", "did you mean --total-steps?"
    )


def test_a_value_of_the_wrong_kind_names_the_flag(shoal):
    assert_one_line(shoal("train", "CartPole-v1", "--seed", "blue"), 2, "--seed", "integer")


def test_a_flag_without_its_value_is_named(shoal):
    assert_one_line(shoal("train", "CartPole-v1", "--seed"), 2, "--seed")


def test_an_unforeseen_failure_is_no_stack_trace(shoal, monkeypatch):
    def broken():
        raise RuntimeError("the disk melted")

    monkeypatch.setattr("shoal.doctor.examine", broken)
    status, out, err = shoal("doctor")
    assert (status, out) == (1, "")
    assert err.startswith("shoal: RuntimeError: the disk melted") and "Traceback" not in err
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")
    assert "Traceback" in shoal("doctor")[2]


def test_a_sigterm_that_no_command_has_seen_is_no_stack_trace(shoal, monkeypatch):
    def terminated():
        raise Terminated

    monkeypatch.setattr("shoal.doctor.examine", terminated)
    assert shoal("doctor") == (143, "", "")


TRAIN = "train shoal/CartPole-v1 --total-steps 512 --set final_episodes=2"


@pytest.mark.parametrize(("words", "shown"), [("train --help", "Usage"), ("doctor", " ok kernel"), (TRAIN, "return")])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_that_is_not_utf_8_has_a_mark_for_what_it_lacks(words, shown, encoding, tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "shoal.cli", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
    )
    out, err = result.stdout.decode(encoding), result.stderr.decode(encoding)
    assert "UnicodeEncodeError" not in err
    assert shown in out
    assert result.returncode == 0 or (words == "doctor" and " stop Shoal" in out)


def test_a_reader_that_leaves_is_no_error():
    command = f"{shlex.quote(sys.executable)} -m shoal.cli envs --all | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("words", ["doctor", "stat --watch 0.01 --workers", "train --help"])
def test_a_reader_that_leaves_is_told_by_the_status_of_a_broken_pipe(words, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "shoal.cli", *words.split()],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (141, b"")


def test_a_broken_pipe_that_is_not_of_our_output_is_a_failure(shoal, monkeypatch):
    def broken():
        raise BrokenPipeError(errno.EPIPE, "a simulator has hung up")

    monkeypatch.setattr("shoal.doctor.examine", broken)
    assert_one_line(shoal("doctor"), 1, "a simulator has hung up")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--help", 0, ""),
        ("train no_such_module:X-v0", 1, "the working directory has been removed"),
        ("eval runs/x", 2, "there is no folder 'runs/x'"),
    ],
)
def test_a_working_directory_that_was_removed_is_no_stack_trace(words, status, said, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {shlex.quote(str(gone))}; exec {shlex.quote(sys.executable)} -m shoal.cli {words}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    result = subprocess.run(
        ["bash", "-c", command], cwd=gone, env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == status, result.stderr
    assert said in result.stderr and "Traceback" not in result.stderr and result.stderr.count("\n") == bool(said)


@pytest.mark.parametrize(
    "words",
    [
        ["eval", ""],
        ["plot", ""],
        ["export", "", "--to", "onnx"],
        ["train", "CartPole-v1", "--run-dir", ""],
        ["trace", ""],
        ["trace", "--output", ""],
        ["stat", ""],
        ["stat", "--runs="],
        ["envs", "--plugin", ""],
        ["bench", "learning", "--runs", ""],
    ],
)
def test_an_empty_path_is_refused(shoal, words):
    assert_one_line(shoal(*words), 2, "an empty path")


def test_a_file_is_no_folder_of_runs(shoal, tmp_path):
    (tmp_path / "file").touch()
    assert_one_line(shoal("bench", "learning", "--runs", "file"), 2, "'--runs': 'file' is a file")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed, tmp_path):
    words = "train shoal/CartPole-v1 --total-steps 512 --run-dir run --set final_episodes=2"
    result = subprocess.run(
        ["bash", "-c", f"{shlex.quote(sys.executable)} -m shoal.cli {words} {closed}"], cwd=tmp_path, timeout=60
    )
    assert result.returncode == 0
    assert (tmp_path / "run/result.json").exists()


# --- envs


def test_envs_lists_native_and_gymnasium_ids(shoal):
    status, out, _ = shoal("envs")
    assert status == 0
    assert "  shoal/CartPole-v1\n" in out and "  CartPole-v1\n" in out
    assert "CartPole-v0" not in out  # an older version


def test_envs_with_all_lists_older_versions(shoal):
    assert "  CartPole-v0" in shoal("envs", "--all")[1]


def test_envs_searches_a_word_in_any_case(shoal):
    _, out, _ = shoal("envs", "PENDULUM")
    assert "  shoal/Pendulum-v1\n" in out and "  Pendulum-v1\n" in out and "CartPole" not in out


def test_envs_names_the_nearest_when_nothing_matches(shoal):
    assert_one_line(shoal("envs", "CartPloe-v1"), 1, "did you mean", "CartPole-v1?")


def test_envs_lists_a_native_id_once_where_gymnasium_knows_it_too(shoal):
    importlib.import_module("shoal.envs")
    assert shoal("envs")[1].count("  shoal/CartPole-v1\n") == 1


@pytest.mark.parametrize("words", ["envs", "train CartPole-v1"])
def test_a_bad_path_in_shoal_plugins_is_one_clear_line(words, tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "shoal.cli", *words.split()],
        cwd=tmp_path,
        env={**os.environ, "SHOAL_PLUGINS": "/no/where.so"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "shoal: SHOAL_PLUGINS: there is no file /no/where.so: has the plug-in been built?\n"


# --- environment ids, as train meets them


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        ("CartPloe-v1", ["no environment 'CartPloe-v1'", "did you mean CartPole-v1?"]),
        ("shoal/CartPoel-v1", ["did you mean shoal/CartPole-v1?"]),
        ("CartPole-v7", ["there is no CartPole-v7", "CartPole-v0, CartPole-v1"]),
        ("cart pole!", ["'cart pole!' is not an environment's id"]),
        ("", ["not an environment's id"]),
        ("nosuchmodule:CartPole-v1", ["no module 'nosuchmodule'"]),
    ],
)
def test_a_bad_id_names_the_nearest(shoal, env, parts):
    assert_one_line(shoal("train", env), 2, *parts)


def test_a_module_that_fails_to_import_says_how(shoal, tmp_path):
    (tmp_path / "broken_environments.py").write_text("1 / 0\n")
    assert_one_line(
        shoal("train", "broken_environments:X-v0"), 1, "importing broken_environments failed", "ZeroDivisionError"
    )


def test_a_misspelt_module_names_the_file_that_is_here(shoal, tmp_path):
    (tmp_path / "my_environments.py").write_text("")
    assert_one_line(shoal("train", "my_enviroments:X-v0"), 2, "did you mean my_environments?")


def test_a_module_without_the_id_names_the_nearest(shoal, tmp_path):
    (tmp_path / "few_environments.py").write_text("")
    assert_one_line(shoal("train", "few_environments:CartPol-v1"), 2, "did you mean CartPole-v1?")


def test_an_id_that_one_file_here_registers_is_its_module_s(shoal, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fine_environments.py").write_text(
        """
import gymnasium
gymnasium.register(id="OfOneFile-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""
    )
    (tmp_path / "unrelated.py").write_text("1 / 0; NAME = 'OfOneFile-v0'\n")
    (tmp_path / "no_python.py").write_text("register('OfOneFile-v0'\n")
    assert environments.resolve("OfOneFile-v0") == "fine_environments:OfOneFile-v0"


def test_an_id_that_two_files_here_register_is_asked_about(shoal, tmp_path):
    for name in ("one_of_two", "two_of_two"):
        (tmp_path / f"{name}.py").write_text("from gymnasium import register\nregister('OfTwoFiles-v0')\n")
    assert_one_line(
        shoal("train", "OfTwoFiles-v0"), 2, "one_of_two.py and two_of_two.py", "say which, as one_of_two:OfTwoFiles-v0"
    )


@pytest.mark.parametrize(
    ("env", "module", "package"),
    [
        ("LunarLander-v3", "Box2D", "shoal[box2d]"),
        ("HalfCheetah-v5", "mujoco", "shoal[mujoco]"),
        ("ALE/Pong-v5", "ale_py", "shoal[atari]"),
    ],
)
def test_a_missing_extra_is_the_command_that_installs_it(shoal, monkeypatch, env, module, package):
    find_spec = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == module else find_spec(name, *more)
    )
    monkeypatch.setattr(sys, "prefix", "/usr")  # an environment that ./shoal has not made
    result = shoal("train", env)
    assert_one_line(
        result,
        1,
        f"{env} needs {package}",
        f"{shlex.quote(sys.executable)} -m pip install '{package}'",
    )


# --- settings, as train meets them


def test_train_needs_an_environment(shoal):
    assert_one_line(shoal("train"), 2, "needs an environment")


def test_a_missing_settings_file_names_the_nearest(shoal, tmp_path):
    (tmp_path / "cartpole.toml").write_text("")
    assert_one_line(
        shoal("train", "--config", "cartpol.toml"), 2, "no file 'cartpol.toml'", "did you mean cartpole.toml?"
    )


def test_a_missing_yaml_file_is_missed_before_its_reader(shoal, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert_one_line(shoal("train", "CartPole-v1", "--config", "ppo.yml:CartPole-v1"), 2, "there is no file ppo.yml")
    Path("ppo.yml").write_text("CartPole-v1: {}\n")
    assert_one_line(shoal("train", "CartPole-v1", "--config", "ppo.yml"), 1, "needs PyYAML")


def test_a_settings_file_that_is_not_toml_says_where(shoal, tmp_path):
    (tmp_path / "bad.toml").write_text("seed = \n")
    assert_one_line(shoal("train", "--config", "bad.toml"), 2, "'bad.toml' is not TOML", "line 1")


def test_a_setting_given_in_two_tables_is_refused(shoal, tmp_path):
    (tmp_path / "twice.toml").write_text("gamma = 0.9\n[ppo]\ngamma = 0.8\n")
    assert_one_line(shoal("train", "--config", "twice.toml"), 2, "sets gamma twice")


def test_set_takes_a_key_and_a_value(shoal):
    assert_one_line(shoal("train", "CartPole-v1", "--set", "gamma"), 2, "--set takes key=value, not 'gamma'")


# --- runs, as plot meets them


RECORDS = [
    {"step": 256 * i, "seconds": 0.1 * i, "rollout/ep_rew_mean": 10.0 * i, "train/loss": 1.0 / i} for i in range(1, 9)
]


def test_plot_draws_a_run_into_its_folder(shoal, tmp_path):
    run = run_of(tmp_path / "run", [*RECORDS, {"step": 2048, "seconds": 0.9, "eval/mean_reward": 77.0}])
    assert shoal("plot", run) == (0, f"{run}/curve.png\n", "")
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_plot_draws_several_runs_into_one_image(shoal, tmp_path):
    runs = [run_of(tmp_path / name, RECORDS) for name in ("a", "b")]
    assert shoal("plot", *runs, "--axis", "seconds", "--out", "both.svg")[0] == 0
    drawn = (tmp_path / "both.svg").read_text()
    assert "<svg" in drawn


def test_plot_survives_a_line_that_is_being_written(shoal, tmp_path):
    run = run_of(tmp_path / "run", RECORDS)
    with (run / "progress.jsonl").open("a") as file:
        file.write('{"step": 23')
    assert shoal("plot", run)[0] == 0


def test_plot_of_an_unknown_scalar_names_the_nearest(shoal, tmp_path):
    run = run_of(tmp_path / "run", RECORDS)
    assert_one_line(shoal("plot", run, "--metric", "train/los"), 1, "no 'train/los'", "did you mean train/loss?")
    assert_one_line(shoal("plot", run, "--metric", "loss"), 1, "no 'loss'; did you mean train/loss?")
    assert_one_line(shoal("plot", run, "--metric", "xyz"), 1, "no 'xyz'; it has ", "return, ", "train/loss")


def test_plot_of_no_run_says_what_is_missing(shoal, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_one_line(shoal("plot", tmp_path / "empty"), 1, "is not the folder of a run", "config.json")
    assert_one_line(shoal("plot", tmp_path / "emty"), 2, "there is no folder", "did you mean", "/empty?")
    status, _, err = shoal("plot", tmp_path / "nowhere")
    assert status == 2 and "did you mean" not in err, "absolute paths are alike in all but their ends"
    (tmp_path / "empty/config.json").touch()
    assert_one_line(shoal("plot", "empty/config.json"), 2, "is a file, and not the folder of a run; its run is 'empty'")


def test_plot_of_the_folder_of_runs_names_one(shoal, tmp_path):
    run_of(tmp_path / "runs" / "first", RECORDS)
    assert_one_line(shoal("plot", "runs"), 1, "it holds runs, the latest is runs/first")


def test_plot_of_a_damaged_run_says_so(shoal, tmp_path):
    run = run_of(tmp_path / "run", RECORDS)
    (run / "config.json").write_text("{")
    assert_one_line(shoal("plot", run), 1, "config.json' is damaged")


def test_what_is_named_in_an_error_is_one_line(shoal, tmp_path):
    run_of(tmp_path / "runs" / "a\n\x1b[31mred", RECORDS)
    assert_one_line(shoal("plot", "runs/a\n\x1b[31mre"), 2, r"did you mean runs/a\n\x1b[31mred?")
    assert_one_line(shoal("plot", "runs"), 1, r"the latest is runs/a\n\x1b[31mred")


def test_plot_of_an_unreadable_run_says_so(shoal, tmp_path):
    run = run_of(tmp_path / "run", RECORDS)
    (run / "config.json").unlink()
    (run / "config.json").mkdir()
    assert_one_line(shoal("plot", run), 1, "cannot read", "Is a directory")


def test_plot_refuses_formats_and_axes_that_it_lacks(shoal, tmp_path):
    run = run_of(tmp_path / "run", RECORDS)
    assert_one_line(shoal("plot", run, "--out", "x.gif"), 2, ".png, .svg, .pdf")
    assert_one_line(shoal("plot", run, "--axis", "second"), 2, "--axis takes steps or seconds")
    assert_one_line(shoal("plot", run, "--out", tmp_path / "no" / "x.png"), 1, "cannot write", "No such file")


def test_plot_leaves_out_runs_that_have_measured_nothing(shoal, tmp_path):
    run_of(tmp_path / "runs/a", RECORDS)
    run_of(tmp_path / "runs/b", [])
    run_of(tmp_path / "runs/c", [])
    (tmp_path / "runs/c/progress.jsonl").unlink()
    left_out = [f"left out: 'runs/{name}' has measured nothing yet" for name in "bc"]
    assert shoal("plot", "runs/b", "runs/a", "runs/c") == (0, "curves.png\n", "\n".join(left_out) + "\n")
    assert_one_line(shoal("plot", "runs/b"), 1, "'runs/b' has measured nothing yet")
    assert_one_line(shoal("plot", "runs/b", "runs/c"), 1, "'runs/b', 'runs/c' have measured nothing yet")


# --- test


def test_test_refuses_an_unknown_sanitizer(shoal):
    assert_one_line(shoal("test", "--sanitize", "memory"), 2, "--sanitize takes thread or address, not 'memory'")


def test_test_refuses_an_expression(shoal):
    assert_one_line(shoal("test", "-k", "a or b"), 2, "-k takes one word")


def test_test_outside_a_source_folder_says_so(shoal, monkeypatch, tmp_path):
    monkeypatch.setattr("shoal.cli.test_command.__file__", str(tmp_path / "lib/python/shoal/cli/test_command.py"))
    assert_one_line(shoal("test"), 1, "the tests", "run ./shoal test in a source folder of Shoal")
    assert_one_line(shoal("lint"), 1, "the sources that it checks", "run ./shoal lint in a source folder of Shoal")


def test_an_installed_package_does_not_list_what_it_refuses(shoal, monkeypatch, tmp_path):
    app = importlib.import_module("shoal.cli.app")
    hidden = {command.name for command in app.app.registered_commands if command.hidden}
    assert hidden == set(app.COMMANDS) - set(app.listed_commands())
    monkeypatch.setattr("shoal.cli.test_command.__file__", str(tmp_path / "lib/python/shoal/cli/test_command.py"))
    assert set(app.COMMANDS) - set(app.listed_commands()) == {"test", "lint", "docs"}
    assert_one_line(shoal("weather"), 2, "one of train, collect,", "trace, bench (shoal --help")


# --- bench


def test_bench_json_is_alone_on_stdout(shoal):
    arguments = ["--workload", "noop", "--contestant", "shoal-serial", "--contestant", "plain-loops"]
    status, out, _ = shoal("bench", *arguments, "--num-envs", "2", "--rounds", "1", "--seconds", "0.02", "--json")
    assert status == 0 and out.count("\n") == 1
    rates = json.loads(out)["rates"]
    assert [rate["contestant"] for rate in rates] == ["shoal-serial", "plain-loops"]
    assert all(rate["median"] > 0 for rate in rates)


def test_bench_of_an_unknown_workload_or_contestant_names_the_nearest(shoal):
    assert_one_line(shoal("bench", "--workload", "noops"), 2, "no workload 'noops'", "did you mean noop?")
    assert_one_line(shoal("bench", "--contestant", "gymnasium-snyc"), 2, "did you mean gymnasium-sync?")
    assert_one_line(shoal("bench", "--workload", "weather"), 2, "there are cartpole, noop, ")


def test_bench_learning_trains_the_rows_that_are_named(shoal):
    arguments = ["--row", "ppo/CartPole-v1", "--seeds", "1", "--steps", "256", "--jobs", "1"]
    status, out, _ = shoal("bench", "learning", *arguments, "--json")
    assert status == 0 and out.count("\n") == 1
    (row,) = json.loads(out)["rows"]
    assert (row["row"], row["side"], row["steps"], len(row["seeds"])) == ("ppo/CartPole-v1", "shoal", 256, 1)


def test_bench_refuses_what_it_does_not_measure(shoal):
    assert_one_line(shoal("bench", "learnin"), 2, "no benchmark 'learnin'", "did you mean learning?")
    assert_one_line(shoal("bench", "learning", "--row", "ppo/CartPole-v2"), 2, "did you mean ppo/CartPole-v1?")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["learning", "--workload", "noop"], "shoal bench learning does not take --workload; it takes --row, --seeds,"),
        (["learning", "--explain", "CartPole-v1"], "shoal bench learning does not take --explain;"),
        (
            ["learning", "--num-envs", "4", "--num-workers", "1", "--rounds", "5", "--seconds", "1", "--beside", "2"],
            "learning does not take --num-envs, --num-workers, --rounds, --seconds, --beside;",
        ),
        (["--sb3"], "shoal bench steps does not take --sb3; it takes --workload, --contestant, --num-envs,"),
        (["steps", "--seeds", "10", "--steps", "9", "--jobs", "1"], "steps does not take --seeds, --steps, --jobs;"),
        (
            ["--explain", "CartPole-v1", "--rounds", "3", "--seeds", "2"],
            "shoal bench --explain does not take --rounds, --seeds; it takes --explain, --num-envs, --num-workers,",
        ),
        (["--explain", "CartPole-v1", "--workload", "noop"], "shoal bench --explain does not take --workload;"),
        (["--explain", "CartPole-v1", "--beside", "0"], "shoal bench --explain does not take --beside;"),
        (["--explain", "CartPole-v1", "--num-envs", "2", "--num-envs", "3"], "it takes one --num-envs"),
    ],
)
def test_bench_refuses_options_of_another_kind_also_where_they_say_the_default(shoal, arguments, refused):
    assert_one_line(shoal("bench", *arguments), 2, refused)


def test_what_an_id_needs_is_installed_in_a_source_folder_and_named_elsewhere(shoal, monkeypatch):
    installed = []
    source = Path(environments.__file__).resolve().parents[3]

    def install(folder: Path, pins: str, *options: str) -> bool:
        installed.append((folder, pins, options))
        return True

    monkeypatch.setattr(environments, "lacks", lambda name: "shoal[box2d]")
    monkeypatch.setattr(environments, "install", install)
    monkeypatch.setattr(sys, "prefix", str(source / ".venv"))
    assert environments.resolve("LunarLander-v3") == "LunarLander-v3"
    assert installed == [(source, "requirements-box2d.txt", ("--only-binary", ":all:"))]
    monkeypatch.setattr(sys, "prefix", "/usr")
    needs = "LunarLander-v3 needs shoal[box2d], which is not installed:"
    assert_one_line(shoal("train", "LunarLander-v3"), 1, needs, "-m pip install")
    assert len(installed) == 1, "an environment of the user's own is left as it is"


# --- completion


@pytest.fixture
def completed(shoal, capsys, monkeypatch):
    """What bash would offer behind these words, the last of which is begun."""

    def call(*typed: str) -> list[str]:
        monkeypatch.setenv("_SHOAL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["shoal", *typed]))
        monkeypatch.setenv("COMP_CWORD", str(len(typed)))
        with pytest.raises(SystemExit):  # a shell's question is answered by another program
            shoal()
        return capsys.readouterr().out.split()

    return call


def test_a_shell_completes_commands_ids_algorithms_presets_runs_and_parts(completed, tmp_path):
    run_of(tmp_path / "runs" / "first", [])
    assert "train" in completed("tr")
    assert completed("train", "shoal/CartPole-") == ["shoal/CartPole-v1"]
    assert completed("train", "--algorithm", "imp") == ["impala"]
    assert "cleanrl" in completed("train", "--preset", "cle")
    assert "cleanrl" not in completed("train", "--algorithm", "a3c", "--preset", "cle")
    for command in (["eval"], ["plot"], ["stat"], ["trace"], ["export"], ["train", "--resume"]):
        assert completed(*command, "runs/f") == ["runs/first"]
    assert completed("test", "--only", "kil") == ["kills"]
    assert completed("export", "--to", "on") == ["onnx"]
    assert completed("export", "--which", "") == ["best", "last"]
    assert completed("train", "--set", "num_e") == ["num_envs="]
    assert completed("train", "--algorithm", "dqn", "--set", "buffer_s") == ["buffer_size="]
    assert completed("train", "--set", "buffer_s") == []
    assert completed("test", "--sanitize", "") == list(SANITIZERS)
    assert completed("bench", "--explain", "shoal/CartPole-") == ["shoal/CartPole-v1"]


def test_what_cannot_be_completed_is_nothing_and_no_traceback(completed):
    assert completed("train", "--algorithm", "none-such", "--preset", "") == []
