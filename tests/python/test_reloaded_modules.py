"""Workers have the program's modules as their parent has them: edited and reloaded ones, and those that these import."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.process import _versions, launcher, zygotes
from written_modules import written_modules

HELPER = "value = {!r}\n"
SOURCE = """
import gymnasium
import reloaded_helper

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    own = "old"
    helped = reloaded_helper.value
"""

modules = written_modules(reloaded_helper=HELPER.format("old"), reloaded_envs=SOURCE)


def of_workers(module: Any, name: str) -> set[str]:
    with shoal.make_vec(module.Env, 2, num_workers=2) as envs:
        return set(envs.get_attr(name))


def write(module: Any, source: str) -> None:
    """Anew, of another size: Python itself compares times in seconds, and sizes."""
    Path(module.__file__).write_text(source)
    importlib.invalidate_caches()


def test_a_reloaded_module_is_the_workers_too(modules: Any) -> None:
    _, envs = modules
    assert of_workers(envs, "own") == {"old"}
    write(envs, SOURCE.replace('"old"', '"brand new"'))
    importlib.reload(envs)
    assert envs.Env.own == "brand new"
    assert of_workers(envs, "own") == {"brand new"}


def test_so_is_a_reloaded_module_that_it_imports(modules: Any) -> None:
    helper, envs = modules
    assert of_workers(envs, "helped") == {"old"}
    write(helper, HELPER.format("brand new"))
    importlib.reload(helper)
    importlib.reload(envs)
    assert of_workers(envs, "helped") == {"brand new"}


def test_where_nothing_has_changed_the_zygote_stays(modules: Any) -> None:
    helper, envs = modules
    of_workers(envs, "own")
    before = [found["pid"] for found in zygotes()]
    import this_is_new_to_the_program  # noqa: F401

    of_workers(envs, "own")
    assert [found["pid"] for found in zygotes()] == before
    one = launcher(preload=["reloaded_envs"])
    installed = launcher(preload=["numpy"])
    importlib.reload(helper)
    assert launcher(preload=["reloaded_envs"]) is not one
    assert launcher(preload=["numpy"]) is installed  # it has imported none of them


@pytest.fixture(autouse=True)
def new_module(tmp_path: Path) -> None:
    """In the folder of `modules`."""
    (tmp_path / "this_is_new_to_the_program.py").write_text("")


def test_modules_of_the_program_are_those_that_nobody_has_installed(modules: Any) -> None:
    found = _versions.versions(["reloaded_envs"])
    assert {"reloaded_helper", "reloaded_envs", __name__} <= found.keys()
    assert not {"numpy", "os", "gymnasium", "shoal", "shoal.process", "__main__"} & found.keys()
    assert _versions.versions(["numpy"]) == {}


def test_a_removed_file_and_a_module_let_go_change_nothing_twice(modules: Any) -> None:
    helper, envs = modules
    before = _versions.versions(["reloaded_envs"])
    assert _versions.is_current(before)
    os.remove(helper.__file__)
    assert not _versions.is_current(before)
    after = _versions.versions(["reloaded_envs"])
    assert _versions.is_current(after)
