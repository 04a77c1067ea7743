"""The C++ examples, built against an install tree: a plug-in, and a program that uses find_package(shoal)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plugin_builds import ROOT, needs_a_build, python, run

pytestmark = needs_a_build


@pytest.fixture(scope="module")
def plugin(build: Callable[..., Path]) -> Path:
    return build(ROOT / "examples" / "plugin_env") / "libwalk.so"


def test_the_program_steps_the_same_in_threads_and_processes(build: Callable[..., Path], plugin: Path) -> None:
    program = build(ROOT / "examples" / "cmake_project") / "step_cartpole"
    assert run(program).startswith("shoal/CartPole-v1: ")
    # A plug-in of the program reaches its worker processes, by call and by variable.
    by_call = run(program, "mine/Walk-v0", plugin)
    assert run(program, "mine/Walk-v0", env={**os.environ, "SHOAL_PLUGINS": f"{plugin}:"}) == by_call


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_the_plugin_steps_on_every_backend(plugin: Path, backend: str) -> None:
    code = f"""
import shoal, shoal.envs, gymnasium, numpy as np
assert shoal.envs.load_plugin({str(plugin)!r}) == ["mine/Walk-v0"] == shoal.envs.load_plugin({str(plugin)!r})
envs = shoal.make_vec("mine/Walk-v0", 4, backend={backend!r}, num_workers={0 if backend == "serial" else 2})
obs, _ = envs.reset(seed=0)
one = gymnasium.make("mine/Walk-v0")
assert one.reset(seed=0)[0] == obs[0]
right, steps = np.ones(4, np.int64), 0
total = np.zeros(4)
for _ in range(8):
    obs, reward, terminated, _, _ = envs.step(right)
    total += reward
assert (total >= 1).all(), total
envs.close()
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_the_variable_reaches_python_workers(plugin: Path) -> None:
    code = """
import shoal, gymnasium, shoal.envs
def make():
    import shoal.envs
    return gymnasium.make("mine/Walk-v0")
envs = shoal.make_vec(make, 2, num_workers=2)
print(envs.reset(seed=0)[0].shape)
envs.close()
"""
    done = python(code, SHOAL_PLUGINS=str(plugin))
    assert done.returncode == 0 and done.stdout == "(2, 1)\n", done.stderr


def test_commands_take_the_plugin(plugin: Path, tmp_path: Path) -> None:
    shoal = [sys.executable, "-m", "shoal.cli"]
    assert "mine/Walk-v0" in run(*shoal, "envs", "--plugin", plugin, cwd=tmp_path)
    flags = ["--total-steps", 2000, "--num-envs", 4, "--run-dir", tmp_path / "run", "--json", "--plugin", plugin]
    trained = run(*shoal, "train", "mine/Walk-v0", *flags, cwd=tmp_path)
    assert json.loads(trained.splitlines()[-1])
    evaluated = run(*shoal, "eval", tmp_path / "run", "--episodes", 4, "--json", "--plugin", plugin, cwd=tmp_path)
    assert json.loads(evaluated)["episodes"] == 4
    refused = subprocess.run(
        [*shoal, "train", "mine/Walk-v0", "--plugin", "no.so"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert refused.returncode == 2 and "there is no file no.so" in refused.stderr


def test_a_plugin_of_another_shoal_is_refused_before_its_code_runs(plugin: Path, tmp_path: Path) -> None:
    data = plugin.read_bytes()
    at = data.index(b"Shoal plug-in is") + 16
    (tmp_path / "old.so").write_bytes(data[:at] + b"\x63\0\0\0" + data[at + 4 :])
    done = python(f"import shoal.envs; shoal.envs.load_plugin({str(tmp_path / 'old.so')!r})")
    assert "ValueError" in done.stderr and "interface 99 of Shoal" in done.stderr and "build it again" in done.stderr


def test_an_id_that_is_taken_is_refused_and_nothing_is_registered(plugin: Path, tmp_path: Path) -> None:
    shutil.copy(plugin, tmp_path / "copy.so")
    code = f"""
import shoal.envs
shoal.envs.load_plugin({str(plugin)!r})
try:
    shoal.envs.load_plugin({str(tmp_path / "copy.so")!r})
except ValueError as error:
    print(error)
print(shoal._core.env.is_registered("mine/Walk-v0"))
"""
    done = python(code)
    assert 'already registered as "mine/Walk-v0"' in done.stdout and done.stdout.endswith("True\n"), done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"not a library", "is no Shoal plug-in"),
        (b"Shoal plug-in is", "is no Shoal plug-in"),
    ],
)
def test_a_file_that_is_no_plugin_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "some.so"
    if content is not None:
        path.write_bytes(content)
    code = f"import shoal.envs; shoal.envs.load_plugin({str(path)!r})"
    done = python(code)
    assert "ValueError" in done.stderr and message in done.stderr and str(path) in done.stderr
    done = python("import shoal; shoal.make_vec('shoal/CartPole-v1', 1)", SHOAL_PLUGINS=str(path))
    assert "ValueError: SHOAL_PLUGINS: " in done.stderr and message in done.stderr


def test_a_missing_symbol_is_named_as_its_author_wrote_it(build: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "examples" / "plugin_env", source)
    walk = (source / "walk.cc").read_text()
    walk = walk.replace("namespace {", "namespace mine { int missing(double); }\n\nnamespace {", 1)
    (source / "walk.cc").write_text(walk.replace("place_ += ", "place_ += mine::missing(0.5) + "))
    library = build(source) / "libwalk.so"
    done = python(f"import shoal.envs; shoal.envs.load_plugin({str(library)!r})")
    assert "ValueError" in done.stderr and "mine::missing(double)" in done.stderr
