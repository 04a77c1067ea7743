"""Plug-ins that are wrong, or that programs use wrongly: built against an install tree."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from plugin_builds import needs_a_build, python

pytestmark = needs_a_build

ALL = ("serial", "thread", "process")


@pytest.fixture(scope="module")
def folder(build: Callable[..., Path]) -> Path:
    return build(Path(__file__).parent / "crooked_plugins")


def said(library: Path, code: str) -> str:
    """What `code` printed, which begins with the plug-in loaded."""
    head = f"import numpy as np, gymnasium, shoal, shoal.envs\nshoal.envs.load_plugin({str(library)!r})\n"
    done = python(head + code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(library: Path) -> str:
    """Why it is not loaded."""
    code = f"import shoal.envs\ntry: shoal.envs.load_plugin({str(library)!r})\nexcept ValueError as error: print(error)"
    done = python(code + "\nfor spec in shoal._core.env.registered(): assert spec.id.startswith('shoal/')")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", ALL)
def test_the_arrays_of_a_dict_are_those_of_its_keys(folder: Path, backend: str) -> None:
    code = f"""
envs = shoal.make_vec("crooked/Ordered-v0", num_envs=2, backend={backend!r})
obs, _ = envs.reset(seed=0)
assert envs.observation_space.contains(obs), obs
assert (obs["zeta"] == 1).all() and (obs["alpha"] == 2).all()
obs, *_ = envs.step({{"first": np.array([1, 2]), "second": np.array([5, 8])}})
assert obs["zeta"].tolist() == [[5, 5], [8, 8]] and obs["alpha"].tolist() == [[1, 1, 1], [2, 2, 2]]
envs.close()
one = gymnasium.make("crooked/Ordered-v0")
assert one.observation_space.contains(one.reset(seed=0)[0])
print("right")
"""
    assert said(folder / "libcrooked.so", code) == "right\n"


@pytest.mark.parametrize("backend", ALL)
def test_what_one_throws_has_its_number(folder: Path, backend: str) -> None:
    code = f"""
for name, actions in (("Throwing", [0, 0, 0, 1]), ("ThrowsANumber", [0] * 4), ("NoSuchArray", [0] * 4), ("Throwing", [0, 0, 7, 0])):
    envs = shoal.make_vec(f"crooked/{{name}}-v0", num_envs=4, num_workers=2 if {backend!r} != "serial" else 0, backend={backend!r})
    envs.reset()
    try:
        envs.step(np.array(actions))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
    envs.close()
"""
    lines = said(folder / "libcrooked.so", code).splitlines()
    assert "environment 3: rare" in lines[0]
    assert "environment 0: it threw what is no std::exception" in lines[1]
    assert "environment 0: there is no array 3 of the row, which has 1" in lines[2]
    assert "environment 2: action 7 is not in Discrete(2)" in lines[3]


def test_only_the_one_that_throws_is_restarted(folder: Path) -> None:
    code = """
def told(fault):
    return fault.kind, fault.env, fault.seed, fault.episode_step

envs = shoal.make_vec("crooked/Throwing-v0", num_envs=4, num_workers=2, on_fault="restart")
envs.reset(seed=5)
envs.step(np.zeros(4, int))
_, _, _, truncated, infos = envs.step(np.array([0, 1, 0, 0]))
print(truncated.tolist(), told(infos["fault"][1]), infos["_fault"].tolist())
_, _, _, truncated, infos = envs.step(np.zeros(4, int))
print(truncated.tolist(), [worker["state"] for worker in envs.health()])
envs.close()
envs = shoal.make_vec("crooked/Throwing-v0", num_envs=4, num_workers=2, batch_size=4, on_fault="restart")
envs.async_reset(seed=5)
envs.recv()
envs.send(np.array([0, 0, 1, 0]), np.arange(4))
infos = envs.recv()[4]
(at,) = np.flatnonzero(infos["_fault"])
print(told(infos["fault"][at]), infos["_fault"].sum())
envs.close()
"""
    assert said(folder / "libcrooked.so", code).splitlines() == [
        "[False, True, False, False] ('exception', 1, 6, 1) [False, True, False, False]",
        "[False, False, False, False] ['idle', 'idle']",
        "('exception', 2, 7, 0) 1",
    ]


def test_spaces_without_samples_are_refused(folder: Path) -> None:
    code = """
for name in ("KeyTwice", "WrongBounds", "NoBounds", "NanBounds", "NegativeShape"):
    try:
        shoal.make_vec(f"crooked/{name}-v0", num_envs=1)
    except ValueError as error:
        print(error)
try:
    shoal.make_vec("crooked/Ordered-v0", num_envs=1, env_kwargs={"speed": 2})
except ValueError as error:
    print(error)
"""
    assert said(folder / "libcrooked.so", code).splitlines() == [
        'crooked/KeyTwice-v0: its observation space: a Dict space has the key "a" twice',
        "crooked/WrongBounds-v0: its observation space: camera: a space of 3 elements has 2 values of low",
        "crooked/NoBounds-v0: its observation space: a Box has no bounds",
        "crooked/NanBounds-v0: its action space: a Box has the bounds nan to 1",
        "crooked/NegativeShape-v0: its observation space: a space has the shape [-3]: there are no such arrays",
        "crooked/Ordered-v0: unknown argument speed; it takes none",
    ]


def test_a_library_that_cannot_be_loaded_says_why(folder: Path, tmp_path: Path) -> None:
    assert "registers nothing: it has no SHOAL_REGISTER_ENV line" in refused(folder / "libsilent.so")
    assert 'Gymnasium has an environment "CartPole-v1" of its own' in refused(folder / "libtaken.so")
    assert "it is not linked with Shoal, whose " in refused(folder / "libunlinked.so")
    whole = (folder / "libcrooked.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(whole[: whole.index(b"Shoal plug-in is") + 1000])
    assert "is cut off" in refused(tmp_path / "cut.so")


def test_what_a_refused_plugin_registered_itself_is_taken_back(folder: Path) -> None:
    code = f"""
import numpy as np, shoal, shoal.envs
try:
    shoal.envs.load_plugin({str(folder / "libspoilt.so")!r})
except ValueError as error:
    print(error)
for name in ("Payer", "Plain"):
    try:
        shoal.make_vec(f"direct/{{name}}-v0", num_envs=1)
    except Exception as error:
        print(type(error).__name__)
print(shoal.envs.load_plugin({str(folder / "libdirect.so")!r}))
for name in ("Payer", "Plain"):
    envs = shoal.make_vec(f"direct/{{name}}-v0", num_envs=2)
    envs.reset(seed=0)
    print(envs.step(np.array([0, 2]))[1])
    envs.close()
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f'{folder / "libspoilt.so"}: "no id" cannot be an environment\'s id')
    assert lines[1:3] == ["NameNotFound"] * 2
    assert "direct/Payer-v0" in lines[3] and "direct/Plain-v0" in lines[3]
    assert lines[4:] == ["[0. 2.]"] * 2


def test_numbers_that_the_element_type_does_not_hold_are_refused(folder: Path) -> None:
    code = """
for name in ("BytesBeyond", "FloatChoices"):
    try:
        shoal.make_vec(f"crooked/{name}-v0", num_envs=1)
    except ValueError as error:
        print(error)
envs = shoal.make_vec("crooked/Odd-v0", num_envs=1)
print(envs.single_observation_space["flags"], envs.single_observation_space["any"])
envs.close()
"""
    assert said(folder / "libcrooked.so", code).splitlines() == [
        "crooked/BytesBeyond-v0: its observation space: a Box of uint8 has the low bound -5, which it does not hold",
        "crooked/FloatChoices-v0: its action space: a space of 3 values has the element type float32, which has no integers",
        "Box(False, True, (2,), bool) Box(-32768, 32767, (1,), int16)",
    ]


@pytest.mark.parametrize("backend", ALL)
def test_actions_outside_a_space_do_not_reach_an_environment(folder: Path, backend: str) -> None:
    code = f"""
envs = shoal.make_vec("crooked/Shop-v0", num_envs=2, backend={backend!r})
envs.reset()
try:
    envs.step(np.array([[2, 4], [10**12, 1]]))
except ValueError as error:
    print(str(error).splitlines()[0])
"""
    assert said(folder / "libcrooked.so", code) == (
        "environment 1: action 1000000000000 (element 0) is not in MultiDiscrete([3 5])\n"
    )


def test_one_that_has_changed_is_told(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "some.so"
    shutil.copy(folder / "libcrooked.so", library)
    code = f"""
import os, shutil, sys
shutil.copy({str(folder / "libcrooked.so")!r}, {str(tmp_path / "new.so")!r})
os.replace({str(tmp_path / "new.so")!r}, {str(library)!r})
try:
    shoal.envs.load_plugin({str(library)!r})
except ValueError as error:
    print(error)
os.environ["SHOAL_LOG"] = "warning"
for _ in range(2):
    shoal.make_vec("crooked/Throwing-v0", num_envs=2, num_workers=2, backend="process").close()
"""
    head = f"import shoal, shoal.envs\nshoal.envs.load_plugin({str(library)!r})\n"
    done = python(head + code)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == f"{library} has changed since this program loaded it, and what is loaded stays: start the program again\n"
    )
    assert (
        done.stderr.count(f"{library} has changed since this program loaded it: workers that start from now on run")
        == 1
    )
