"""shoal.compat.envpool beside EnvPool itself: the same games from the same seeds, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

peer = pytest.importorskip("envpool", reason="it is in an environment of its own: ./shoal test --only envpool")

import shoal.compat.envpool as envpool  # noqa: E402

STEPS = 400


@pytest.mark.parametrize(
    ("game", "arguments"),
    [
        ("Pong-v5", {}),
        ("Breakout-v5", {"episodic_life": True, "reward_clip": True}),
        ("Seaquest-v5", {"stack_num": 2, "frame_skip": 3, "img_height": 100, "img_width": 90, "noop_max": 7}),
        ("SpaceInvaders-v5", {"gray_scale": False, "use_fire_reset": False, "full_action_space": True}),
        ("Qbert-v5", {"max_episode_steps": 60, "seed": [5, 1, 9, 2], "frame_skip": 1}),
    ],
)
def test_a_game_is_envpools(game: str, arguments: dict[str, Any]) -> None:
    made = [
        module.make(game, env_type="gymnasium", num_envs=4, **{"seed": 11, **arguments}) for module in (peer, envpool)
    ]
    theirs, ours = made
    assert ours.observation_space.shape == theirs.observation_space.shape
    assert ours.action_space.n == theirs.action_space.n
    results = [(*each.reset(), each) for each in made]
    same(results[0][:2], results[1][:2])
    actions = np.random.default_rng(0)
    ended = 0
    for _ in range(STEPS):
        action = actions.integers(ours.action_space.n, size=4).astype(np.int32)
        expected, result = (each.step(action) for each in made)
        same(expected, result)
        ended += int(result[2].sum() + result[3].sum())
    assert ended or not {"episodic_life", "max_episode_steps"} & arguments.keys()
    for each in made:
        each.close()


def same(expected: Any, result: Any) -> None:
    *theirs, their_info = expected
    *ours, our_info = result
    for a, b in zip(theirs, ours, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(b, a)
    for key in ("env_id", "elapsed_step", "lives", "reward", "terminated", "ram"):
        assert their_info[key].dtype == our_info[key].dtype, key
        np.testing.assert_array_equal(our_info[key], their_info[key], err_msg=key)
