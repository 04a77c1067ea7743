"""benchmarks/time_to_solve.py: both sides get the same settings, and are compared by their best."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import bench_scripts
from shoal import learn
from shoal.bench.roster import interpreter

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench_scripts.script("time_to_solve")


def test_the_preset_s_settings_are_the_preset_s(script):
    preset = learn.preset("CartPole-v1")
    assert {name: preset[name] for name in script.ZOO} == script.SETTINGS["preset"]
    assert script.SETTINGS["preset"] == script.ZOO | {"batch_size": 128} and script.ZOO["batch_size"] == 256


@pytest.mark.parametrize("which", ["zoo", "preset", "a2c"])
def test_both_sides_are_told_the_same(script, which):
    settings = script.SETTINGS[which]
    mine = script.shoal_command("CartPole-v1", settings, 3, "/run", [])
    told = dict(mine[i + 1].split("=") for i, word in enumerate(mine) if word == "--set")
    assert {name: told[name] for name in settings} == {name: str(value) for name, value in settings.items()}
    theirs = script.sb3_command(settings, 3, 1)
    assert json.loads(theirs[theirs.index("--settings") + 1]) == settings
    assert theirs[-2:] == ["--threads", "1"] and "--threads" not in script.sb3_command(settings, 3, None)


def test_the_faster_of_the_others_counts(script):
    def rows(*walls: float) -> list[dict[str, object]]:
        return [{"wall": wall, "solved": True, "steps": 5000} for wall in walls]

    lines = script.verdict(
        {"shoal": rows(1, 2, 1), "sb3, 1 thread": rows(6, 6, 8), "sb3, torch's threads": rows(9, 9, 1)}
    )
    assert len(lines) == 4 and lines[-1] == "  shoal is 6.0 (3.0 - 8.0) times as fast as sb3, 1 thread"
    assert len(script.verdict({"shoal": rows(1)})) == 1


def test_those_of_a2c_are_stable_baselines3s_and_the_preset_s_but_for_the_schedule(script):
    for preset in (learn.preset("sb3", "a2c") | {"num_envs": 8}, learn.preset("CartPole-v1", "a2c")):
        told = {name: preset[name] for name in script.A2C}
        assert told | {"total_steps": 500_000, "learning_rate_schedule": "constant"} == script.A2C


@pytest.mark.parametrize("algorithm", ["a3c", "impala", "appo"])
def test_those_that_are_timed_alone_are_the_presets(script, algorithm):
    told = learn.preset("CartPole-v1", algorithm)
    stopping = {"eval_every": script.EVERY, "target_return": told["target_return"]}
    defaults = learn.preset("default", algorithm)
    differing = {name: value for name, value in told.items() if value != defaults[name]}
    settings = script.ALONE[algorithm]
    assert differing.items() <= (settings | stopping).items()
    assert {name: told[name] for name in settings} == settings


@pytest.mark.parametrize(("which", "steps"), [("zoo", 512), ("a2c", 520), ("a3c", 512), ("impala", 640), ("appo", 512)])
def test_shoal_takes_every_one_of_the_settings(script, which, steps, tmp_path):
    settings = script.SETTINGS[which] | {"total_steps": 512}
    more = [
        "--set",
        "final_episodes=1",
        *(["--num-workers", "0"] if which == "a3c" else []),
    ]  # with actors it may be more steps
    command = script.shoal_command("shoal/CartPole-v1", settings, 0, str(tmp_path / "run"), more)
    start = [sys.executable, "-c", "from shoal.cli import main; main()", *command[command.index("train") :]]
    done = subprocess.run(start, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == steps


@pytest.mark.parametrize(("which", "steps"), [("preset", 512), ("a2c", 520)])
def test_stable_baselines3_takes_every_one_of_the_settings(script, which, steps):
    if interpreter("sb3") is None:
        pytest.skip("benchmarks/peers/setup sb3 has not been run")
    command = script.sb3_command(script.SETTINGS[which] | {"total_steps": 512}, 0, 1)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["steps"] == steps and not found["solved"]
