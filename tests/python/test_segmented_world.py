"""shoal/SegmentedWorld-v0 against its twin in examples/segmentation, pixel for pixel, and on every backend."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import shoal
import shoal.envs
from shoal import _core

sys.path.append(str(Path(__file__).parents[2] / "examples" / "segmentation"))

from world import CLASSES, SIDE, World

ID = "shoal/SegmentedWorld-v0"


def native(count: int = 1, **kwargs) -> _core.env.BatchEnv:
    return _core.env.BatchEnv(ID, count, json.dumps(kwargs))


def toward(world: World, random: np.random.Generator) -> int:
    """An action that leads to a fruit, or into anything, or at random: so that episodes of every kind are seen."""
    if random.random() < 0.2:
        return int(random.integers(4))
    fruit = world._objects[3 + int(random.integers(6))]
    dx, dy = fruit.x - world._agent.x, fruit.y - world._agent.y
    if abs(dx) > abs(dy):
        return 3 if dx > 0 else 2
    return 1 if dy > 0 else 0


def test_episodes_equal_the_twins_pixel_for_pixel():
    world, batch = World(), native(observation="both")
    mask, rgb = batch.obs
    random = np.random.default_rng(1)
    ends, fruits = {"terminated": 0, "truncated": 0}, 0
    for episode in range(60):
        seed = None if episode % 3 == 2 else episode * 7919
        expected, _ = world.reset(seed=seed)
        batch.reset(0, seed)
        over, steps = False, 0
        while not over:
            assert rgb[0].tobytes() == expected.tobytes(), f"episode {episode}, step {steps}"
            assert mask[0].tobytes() == world.mask.tobytes(), f"episode {episode}, step {steps}"
            action = toward(world, random)
            batch.actions[0][0] = action
            batch.step()
            expected, reward, terminated, _, _ = world.step(action)
            steps += 1
            fruits += reward > 0
            assert (batch.reward[0], bool(batch.terminated[0])) == (reward, terminated)
            assert bool(batch.truncated[0]) == (steps == 100)
            over = terminated or steps == 100
        ends["terminated"] += terminated
        ends["truncated"] += not terminated
    assert min(ends.values()) > 0 and fruits > 30, "the comparison has not seen every kind of episode"


def test_it_is_a_gymnasium_environment_that_draws_itself():
    env = gymnasium.make(ID, render_mode="rgb_array", observation="mask")
    check_env(env.unwrapped)
    obs, _ = env.reset(seed=3)
    assert obs.shape == (SIDE, SIDE) and env.observation_space.contains(obs)
    world = World(render_mode="rgb_array")
    world.reset(seed=3)
    for action in (0, 3, 3, 1):
        env.step(action)
        world.step(action)
    assert np.array_equal(env.render(), world.render())
    with pytest.raises(ValueError, match="render_mode='rgb_array'"):
        shoal.envs.native.NativeEnv(ID, render_mode="human")
    assert gymnasium.make(ID, observation="both").reset(seed=1)[0].keys() == {"mask", "rgb"}
    check_env(World(render_mode="rgb_array"), skip_render_check=True)


def test_its_spaces_and_its_spec():
    assert native().observation_space == spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    assert native(observation="mask").observation_space == spaces.Box(0, len(CLASSES) - 1, (SIDE, SIDE), np.uint8)
    assert list(native(observation="both").observation_space) == ["mask", "rgb"]
    assert native().action_space == spaces.Discrete(4)
    spec = _core.env.find(ID)
    assert (spec.max_episode_steps, spec.reward_threshold) == (100, 10.0)
    with pytest.raises(ValueError, match="argument observation must be one of rgb, mask, both"):
        native(observation="depth")


def test_same_seeds_give_the_same_bits_on_every_backend():
    def play(**where) -> list[bytes]:
        envs = shoal.make_vec(ID, 5, env_kwargs={"observation": "both"}, **where)
        obs, _ = envs.reset(seed=7)
        seen = [obs["rgb"].tobytes(), obs["mask"].tobytes()]
        random = np.random.default_rng(2)
        for _ in range(130):
            obs, reward, terminated, truncated, _ = envs.step(random.integers(4, size=5))
            seen += [obs["mask"].tobytes(), reward.tobytes(), terminated.tobytes(), truncated.tobytes()]
        seen.append(obs["rgb"].tobytes())
        envs.close()
        return seen

    alone = play(backend="serial")
    assert play(backend="thread", num_workers=2) == alone
    assert play(backend="process", num_workers=2) == alone
    assert play(backend="process", num_workers=3) == alone


def test_the_python_twin_gives_the_same_pictures_in_worker_processes():
    ours = shoal.make_vec(ID, 3, backend="serial")
    theirs = shoal.make_vec(World, 3, num_workers=2, max_episode_steps=100)
    random = np.random.default_rng(3)
    assert np.array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    for _ in range(40):
        actions = random.integers(4, size=3)
        one, other = ours.step(actions), theirs.step(actions)
        for left, right in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(left, right)
    ours.close()
    theirs.close()


def test_a_snapshot_goes_on_with_the_same_bits():
    envs = shoal.make_vec(ID, 2, backend="serial")
    envs.reset(seed=1)
    random = np.random.default_rng(4)
    for _ in range(10):
        envs.step(random.integers(4, size=2))
    kept = envs.snapshot()
    actions = random.integers(4, size=(60, 2))
    first = [envs.step(row)[0].tobytes() for row in actions]
    envs.restore(kept)
    assert [envs.step(row)[0].tobytes() for row in actions] == first
    envs.close()
