"""benchmarks/torch_ppo.py, equal_frames.py and weights.py: all sides get the same settings, and the figures are what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench_scripts import BENCHMARKS, script
from shoal import learn


def flags(command: list[str]) -> dict[str, str]:
    return {word: value for word, value in zip(command, command[1:], strict=False) if word.startswith("--")}


def test_the_settings_of_torch_ppo_are_those_of_cleanrl():
    torch_ppo = script("torch_ppo")
    preset = learn.preset("cleanrl")
    assert {name: preset[name] for name in torch_ppo.SETTINGS} == torch_ppo.SETTINGS
    defaults = learn.preset("sb3")  # what the module is trained with beside them
    differing = {name for name, value in preset.items() if value != defaults[name]} - set(torch_ppo.SETTINGS)
    assert differing == {"clip_range_value", "bootstrap_truncated"}, "the one is off for all, the other each one's own"


def test_the_example_and_cleanrl_are_told_the_same():
    torch_ppo = script("torch_ppo")
    example, theirs = flags(torch_ppo.example_command(3)), flags(torch_ppo.cleanrl_command(Path("ppo.py"), 3))
    assert example == {name: value for name, value in theirs.items() if name not in ("--no-clip-vloss", "--no-cuda")}
    assert (example["--num-minibatches"], example["--vf-coef"], example["--seed"]) == ("4", "0.5", "3")
    assert json.loads(flags(torch_ppo.sb3_command(3))["--settings"]) == torch_ppo.SETTINGS


def test_a_run_is_timed_until_it_scores():
    torch_ppo = script("torch_ppo")
    told = "print('512 steps: mean return 20.0'); print('1024 steps: mean return 480.1'); input()"
    row = torch_ppo.timed([sys.executable, "-c", told], 475, None)
    assert (row["steps"], row["solved"]) == (1024, True)
    episodes = "for i in range(101): print(f'global_step={i}, episodic_return=[{500 if i else 0}.]')"
    row = torch_ppo.timed([sys.executable, "-c", episodes], 500, 1)
    assert (row["steps"], row["solved"]) == (100, True)
    row = torch_ppo.timed([sys.executable, "-c", told.replace("; input()", "")], 490, None)
    assert not row["solved"]
    with pytest.raises(SystemExit, match="told nothing"):
        torch_ppo.timed([sys.executable, "-c", "print('no')"], 475, None)


def test_equal_frames_tells_who_is_below_the_first_ones_interval():
    frames = script("equal_frames")
    lines = frames.lines_of({"ppo": [10.0, 11, 12, 13], "appo": [1.0, 2, 3, 4], "ppo-overlap": [20.0] * 4})
    assert "BELOW ppo's interval" in lines[1] and "in or above ppo's interval" in lines[2]


def test_equal_frames_gives_appo_the_settings_of_ppo():
    frames = script("equal_frames")
    ours, preset = frames.told("appo", "Acrobot-v1"), learn.preset("Acrobot-v1")
    of_ppo = {"algorithm", "overlap", "shards", "split_update", "sync_fraction"}
    assert of_ppo.isdisjoint(set(ours) - {"algorithm"}) and ours["algorithm"] == "appo"
    assert {name: ours[name] for name in set(preset) - of_ppo} == {name: preset[name] for name in set(preset) - of_ppo}
    assert frames.told("appo-preset", "Acrobot-v1") is None
    assert frames.told("ppo-overlap", "CartPole-v1") == {"algorithm": "ppo", "preset": "CartPole-v1", "overlap": True}
    assert frames.score("CartPole-v1", "shoal/CartPole-v1", "appo", 0, 256, 0) > 0


def test_no_reader_of_weights_sees_a_torn_set():
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARKS / "weights.py", "--reads", "20000", "--floats", "4096"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["reads"] == 20_000 and found["updates"] > 100 and found["rows"] > 0
    assert found["torn"] == found["older"] == found["of_another_version"] == 0
    assert found["versions_read"] > 10 and found["versions_acted_with"] > 1
