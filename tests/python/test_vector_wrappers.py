"""Gymnasium's own vector wrappers on Shoal's vector environments: as on gymnasium.vector.SyncVectorEnv."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector

import shoal
from same import assert_same
from sample_envs import SpaceEnv

BACKENDS = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
    "live": {"backend": "process", "num_workers": 2, "copy": False},
}

PENDULUM = functools.partial(gymnasium.make, "Pendulum-v1", max_episode_steps=7)
IMAGES = functools.partial(SpaceEnv, "image")
DICTS = functools.partial(SpaceEnv, "dict")

unit_box = spaces.Box(-1.0, 1.0, (4, 3), np.float32)

WRAPPERS: dict[str, tuple[Any, Any]] = {
    "RecordEpisodeStatistics": (PENDULUM, vector.RecordEpisodeStatistics),
    "NormalizeObservation": (PENDULUM, vector.NormalizeObservation),
    "NormalizeReward": (PENDULUM, vector.NormalizeReward),
    "ClipReward": (PENDULUM, functools.partial(vector.ClipReward, min_reward=-1, max_reward=0)),
    "TransformReward": (PENDULUM, functools.partial(vector.TransformReward, func=lambda reward: reward * 2)),
    "TransformObservation": (
        PENDULUM,
        functools.partial(vector.TransformObservation, func=lambda obs: obs / 10, observation_space=unit_box),
    ),
    "TransformAction": (PENDULUM, functools.partial(vector.TransformAction, func=lambda action: action / 2)),
    "ClipAction": (PENDULUM, vector.ClipAction),
    "RescaleAction": (PENDULUM, functools.partial(vector.RescaleAction, min_action=-1.0, max_action=1.0)),
    "RescaleObservation": (
        PENDULUM,
        functools.partial(vector.RescaleObservation, min_obs=np.float32(0), max_obs=np.float32(1)),
    ),
    "DtypeObservation": (PENDULUM, functools.partial(vector.DtypeObservation, dtype=np.float64)),
    "ReshapeObservation": (PENDULUM, functools.partial(vector.ReshapeObservation, shape=(3, 1))),
    "FlattenObservation": (DICTS, vector.FlattenObservation),
    "FilterObservation": (DICTS, functools.partial(vector.FilterObservation, filter_keys=["camera", "id"])),
    "GrayscaleObservation": (IMAGES, vector.GrayscaleObservation),
    "VectorizeTransformObservation": (
        PENDULUM,
        lambda envs: vector.VectorizeTransformObservation(
            envs, wrappers.TransformObservation, func=lambda obs: obs * 2, observation_space=spaces.Box(-99, 99, (3,))
        ),
    ),
    "VectorizeTransformAction": (
        PENDULUM,
        lambda envs: vector.VectorizeTransformAction(
            envs, wrappers.TransformAction, func=lambda action: action / 2, action_space=spaces.Box(-4, 4, (1,))
        ),
    ),
    "VectorizeTransformReward": (
        PENDULUM,
        lambda envs: vector.VectorizeTransformReward(envs, wrappers.TransformReward, func=lambda reward: reward / 2),
    ),
    "DictInfoToList": (DICTS, vector.DictInfoToList),
    "a stack": (
        PENDULUM,
        lambda envs: vector.RescaleAction(
            vector.NormalizeReward(vector.NormalizeObservation(vector.RecordEpisodeStatistics(envs))), -1.0, 1.0
        ),
    ),
}


def without_time(result: Any) -> Any:
    if isinstance(result, tuple) and isinstance(result[-1], dict) and "episode" in result[-1]:
        result[-1]["episode"].pop("t")
        result[-1]["episode"].pop("_t", None)
    return result


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WRAPPERS)
def test_the_wrappers_of_gymnasium_do_what_they_do_on_its_own(name: str, backend: str, mode: str) -> None:
    factory, wrap = WRAPPERS[name]
    bare = shoal.make_vec(factory, 4, autoreset_mode=mode, **BACKENDS[backend])
    their_bare = SyncVectorEnv([factory] * 4, autoreset_mode=AutoresetMode[mode.upper()])
    try:
        try:
            theirs = wrap(their_bare)
        except (AssertionError, ValueError) as refusal:  # some take no environments that reset in the same step
            with pytest.raises(type(refusal)):
                wrap(bare)
            return
        play(wrap(bare), theirs)
    finally:
        bare.close()
        their_bare.close()


def play(ours: Any, theirs: Any) -> None:
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    for envs in (ours, theirs):
        envs.action_space.seed(1)
    assert_same(ours.reset(seed=3), theirs.reset(seed=3), "reset")
    for step in range(20):
        results = [without_time(envs.step(envs.action_space.sample())) for envs in (ours, theirs)]
        assert_same(*results, f"step {step}")
    assert_same(ours.reset(seed=4), theirs.reset(seed=4), "another reset")


@pytest.mark.parametrize("backend", BACKENDS)
def test_numpy_becomes_torch_and_back(backend: str) -> None:
    torch = pytest.importorskip("torch")
    envs = vector.NumpyToTorch(shoal.make_vec(PENDULUM, 2, **BACKENDS[backend]))
    observations, _ = envs.reset(seed=1)
    assert isinstance(observations, torch.Tensor) and observations.shape == (2, 3)
    observations, rewards, *_ = envs.step(torch.zeros(2, 1))
    assert isinstance(rewards, torch.Tensor) and rewards.shape == (2,)
    envs.close()


def test_a_video_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    envs: Any = shoal.make_vec(functools.partial(SpaceEnv, "box", render_mode="rgb_array"), 2, num_workers=2)
    envs = vector.RecordVideo(envs, str(tmp_path), video_length=5, episode_trigger=lambda episode: episode == 0)
    envs.reset(seed=0)
    for _ in range(12):
        envs.step(envs.action_space.sample())
    envs.close()
    assert list(tmp_path.glob("*.mp4"))
