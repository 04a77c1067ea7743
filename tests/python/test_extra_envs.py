"""Gymnasium's Atari and MuJoCo environments in workers, as they are. Needs the packages of requirements-atari.txt and -mujoco.txt."""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import closing

import gymnasium
import numpy as np
import pytest

import shoal
from shoal.vector import extras

NUM_ENVS = 4
ENVS = {
    "ALE/Pong-v5": "ale_py",
    "ALE/Breakout-v5": "ale_py",
    "BreakoutNoFrameskip-v4": "ale_py",
    "HalfCheetah-v5": "mujoco",
    "Ant-v5": "mujoco",
    "InvertedPendulum-v5": "mujoco",
}


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def trajectory(envs: gymnasium.vector.VectorEnv, steps: int) -> list[np.ndarray]:
    """All that reset and steps return but the infos."""
    found = [envs.reset(seed=7)[0].copy()]
    envs.action_space.seed(7)
    for _ in range(steps):
        obs, *more, _ = envs.step(envs.action_space.sample())
        found += [array.copy() for array in (obs, *more)]
    return found


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    assert len(ours) == len(theirs)
    for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other, err_msg=f"array {i}")


@pytest.mark.parametrize("env_id", ENVS)
def test_workers_step_them_as_gymnasium_does_in_this_process(env_id):
    needs(ENVS[env_id])
    extras.provide(env_id)
    serial = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env_id)] * NUM_ENVS)
    theirs = trajectory(serial, 40)
    serial.close()
    if env_id == "InvertedPendulum-v5":
        assert np.any(theirs[3::4]), "no episode ended: automatic resets were not compared"
    with closing(shoal.make_vec(env_id, NUM_ENVS, num_workers=2)) as envs:
        assert (envs.single_observation_space, envs.single_action_space) == (
            serial.single_observation_space,
            serial.single_action_space,
        )
        assert_same(trajectory(envs, 40), theirs)


@pytest.mark.parametrize("context", [pytest.param("fork", marks=pytest.mark.own_process), "spawn"])
@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "InvertedPendulum-v5"])
def test_they_run_under_every_start_method(env_id, context):
    needs(ENVS[env_id])
    with closing(shoal.make_vec(env_id, 2, backend="serial")) as envs:
        theirs = trajectory(envs, 10)
    with closing(shoal.make_vec(env_id, 2, num_workers=2, context=context)) as envs:
        assert_same(trajectory(envs, 10), theirs)


@pytest.mark.parametrize(("env_id", "kwargs"), [("ALE/Pong-v5", {"obs_type": "ram"}), ("Ant-v5", {"frame_skip": 2})])
def test_their_own_arguments_and_attributes_are_reached(env_id, kwargs):
    needs(ENVS[env_id])
    with closing(shoal.make_vec(env_id, 2, num_workers=2, env_kwargs=kwargs)) as envs:
        serial = gymnasium.make(env_id, **kwargs)
        assert envs.single_observation_space == serial.observation_space
        name = "frame_skip" if "frame_skip" in kwargs else "_obs_type"
        assert envs.get_attr(name) == tuple(kwargs.values()) * 2
        serial.close()


@pytest.mark.parametrize(
    ("env_id", "module", "package"),
    [
        ("ALE/Pong-v5", "ale_py", "shoal[atari]"),
        ("PongNoFrameskip-v4", "ale_py", "shoal[atari]"),
        ("HalfCheetah-v5", "mujoco", "shoal[mujoco]"),
        ("HalfCheetah", "mujoco", "shoal[mujoco]"),
        ("LunarLander-v3", "Box2D", "shoal[box2d]"),
    ],
)
def test_a_missing_package_is_named_before_anything_starts(env_id, module, package, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == module else find_spec(name, *more)
    )
    for name in [name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith(f"{module}.")]:
        monkeypatch.delitem(gymnasium.registry, name)
    message = f"needs {package}, which is not installed:  {sys.executable} -m pip install '{package}'"
    with pytest.raises(gymnasium.error.DependencyNotInstalled, match=re.escape(message)):
        shoal.make_vec(env_id, 2)


def test_what_merely_looks_like_it_is_unknown(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with pytest.raises(gymnasium.error.NameNotFound, match="CartPole-v1"):
        shoal.make_vec("CartPoel-v1", 2)
