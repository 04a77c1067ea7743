"""Packages of shoal.compat have the names of the modules that they stand in for."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import gymnasium
import pytest

import shoal.compat.cleanrl
import shoal.compat.gymnasium
from shoal.names import names_of, needs_torch


@pytest.mark.parametrize("package", [shoal.compat.gymnasium, shoal.compat.cleanrl])
def test_gymnasiums_vector_module(package: Any) -> None:
    assert package.AutoresetMode is gymnasium.vector.AutoresetMode
    assert package.SyncVectorEnv is not gymnasium.vector.SyncVectorEnv
    assert not hasattr(package, "NoSuchThing") and not hasattr(package, "_private")


def test_stable_baselines3s_vec_env_and_env_util() -> None:
    peer = pytest.importorskip("stable_baselines3.common.vec_env")
    from shoal.compat.sb3 import DummyVecEnv, VecFrameStack, VecNormalize, is_wrapped

    assert (VecFrameStack, VecNormalize) == (peer.VecFrameStack, peer.VecNormalize)
    assert DummyVecEnv is not peer.DummyVecEnv and issubclass(DummyVecEnv, peer.DummyVecEnv)
    assert is_wrapped.__module__ == "stable_baselines3.common.env_util"
    with pytest.raises(ImportError, match="cannot import name 'NoSuchThing'"):
        from shoal.compat.sb3 import NoSuchThing  # noqa: F401


def test_atari_environments_of_stable_baselines3_are_made_in_our_classes() -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("stable_baselines3")
    from shoal.compat.sb3 import DummyVecEnv, SubprocVecEnv, VecFrameStack, make_atari_env

    envs = VecFrameStack(make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0, vec_env_cls=SubprocVecEnv), n_stack=4)
    alone = VecFrameStack(make_atari_env("PongNoFrameskip-v4", 2, 0, 0, None, None, None, None), n_stack=4)
    assert type(envs.unwrapped) is SubprocVecEnv and type(alone.unwrapped) is DummyVecEnv
    begun, expected = envs.reset(), alone.reset()
    assert begun.shape == (2, 84, 84, 4) and (begun == expected).all()
    for each in (envs, alone):
        each.close()


def test_its_own_names_go_first_and_what_is_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    own, peer, package = ModuleType("own"), ModuleType("peer"), ModuleType("package")
    own.Both, own.Other = "ours", "renamed"  # type: ignore[attr-defined]
    peer.Both, peer.Theirs = "theirs", "theirs"  # type: ignore[attr-defined]
    for module in (own, peer, package):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.__getattr__ = names_of("package", {"Both": "own", "Older": "own:Other"}, ["peer"], "needs it")  # type: ignore[method-assign]
    assert [package.Both, package.Older, package.Theirs] == ["ours", "renamed", "theirs"]
    assert {"Both", "Older", "Theirs"} <= vars(package).keys()


def test_without_the_library_every_public_name_says_what_to_install() -> None:
    program = """
import sys
sys.modules["tianshou"] = sys.modules["torchrl"] = None
import shoal.compat.tianshou as package
print(hasattr(package, "__wrapped__"))
from shoal.compat.tianshou import slot
for line in (
    "package.SubprocVectorEnv",
    "package.PettingZooEnv",
    "from shoal.compat.tianshou import VectorEnvNormObs, SubprocVectorEnv",
    "from shoal.compat.torchrl import TransformedEnv",
):
    try:
        exec(line)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "False",
        *["shoal.compat.tianshou needs tianshou:  pip install 'shoal[tianshou]'"] * 3,
    ], done.stderr
    assert lines[4].startswith("shoal.compat.torchrl needs TorchRL:  pip install 'shoal[torchrl]'"), lines


def test_a_library_that_would_replace_an_installed_torch_says_so() -> None:
    program = """
import sys
sys.modules["torchrl"] = sys.modules["stable_baselines3"] = None
import shoal.compat.sb3, shoal.compat.torchrl
for package, name in ((shoal.compat.sb3, "SubprocVecEnv"), (shoal.compat.torchrl, "ParallelEnv")):
    try:
        getattr(package, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    of_sb3, of_torchrl = done.stdout.splitlines()
    assert (
        "pip install 'shoal[sb3]'  (2.9 of it needs torch 2.8: to keep an older torch, name its release too" in of_sb3
    )
    assert of_torchrl.endswith("pip install 'shoal[torchrl]'  (it needs torch 2.7, and replaces an older one)")


def test_what_needs_torch_names_the_command_that_installs_it() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match=r"policy= needs torch:  pip install 'shoal\[torch\]'"),
        needs_torch("policy="),
    ):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    for other in ("other", "safetensors"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{other}'"), needs_torch("policy="):
            raise ModuleNotFoundError(f"No module named '{other}'", name=other)
