"""Native environments through shoal.make_vec: on every backend the trajectories of Gymnasium's own."""

from __future__ import annotations

import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import shoal
from same import assert_same
from vector_backends import Make, make_on

BACKENDS = {
    "serial": {"backend": "serial"},
    "thread-1": {"num_workers": 1},
    "thread-3": {"backend": "thread", "num_workers": 3},
    "process-2": {"backend": "process", "num_workers": 2},
}


make = make_on(BACKENDS)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_cartpole_plays_as_gymnasiums_does(make: Make, mode: str) -> None:
    ours = make("shoal/CartPole-v1", 5, autoreset_mode=mode)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 5, autoreset_mode=getattr(AutoresetMode, mode.upper())
    )
    assert_same(ours.reset(seed=3), theirs.reset(seed=3), "reset")
    for envs in (ours, theirs):
        envs.action_space.seed(3)
    for step in range(300):
        assert_same(ours.step(ours.action_space.sample()), theirs.step(theirs.action_space.sample()), f"step {step}")


def test_spaces_and_spec_are_gymnasiums(make: Make) -> None:
    ours, theirs = make("shoal/Pendulum-v1", 2), gymnasium.make("Pendulum-v1")
    assert ours.single_observation_space == theirs.observation_space
    assert ours.single_action_space == theirs.action_space
    assert ours.spec is not None and ours.spec.id == "shoal/Pendulum-v1"
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert repr(ours) == "VectorEnv(shoal/Pendulum-v1, num_envs=2)"


def test_keyword_arguments_reach_the_environments(make: Make) -> None:
    envs = make("shoal/CartPole-v1", 2, env_kwargs={"max_episode_steps": 2})
    envs.reset(seed=0)
    envs.step([0, 1])
    assert envs.step([1, 0])[3].tolist() == [True, True]
    with pytest.raises(ValueError, match="no_such_argument"):
        make("shoal/CartPole-v1", 2, env_kwargs={"no_such_argument": 1})
    with pytest.raises(TypeError, match="JSON"):
        make("shoal/CartPole-v1", 2, env_kwargs={"max_episode_steps": object()})


@pytest.mark.parametrize(("limit", "told"), [(7, 7), (-1, None), (None, 500)])
def test_the_spec_has_the_time_limit_that_holds(make: Make, limit: int | None, told: int | None) -> None:
    spec = make("shoal/CartPole-v1", 1, env_kwargs={"max_episode_steps": limit}).spec
    assert spec is not None and spec.max_episode_steps == told


@pytest.mark.parametrize(
    ("name", "value"), [("episode_statistics", True), ("frame_stack", 2), ("reward_clip", [-1, 1])]
)
def test_what_the_engine_does_is_no_argument_of_an_environment(make: Make, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"env_kwargs=.*'{name}'.*say make_vec\({name}=…\)"):
        make("shoal/CartPole-v1", 2, env_kwargs={name: value})
    make("shoal/CartPole-v1", 2, **{name: value}).reset(seed=0)


def test_a_mask_resets_what_it_selects(make: Make) -> None:
    envs = make("shoal/CartPole-v1", 3)
    first = envs.reset(seed=0)[0]
    stepped = envs.step([0, 0, 0])[0]
    after = envs.reset(seed=0, options={"reset_mask": np.array([False, True, False])})[0]
    assert np.array_equal(after[[0, 2]], stepped[[0, 2]]) and np.array_equal(after[1], first[1])


def test_what_native_environments_do_not_have_is_said(make: Make) -> None:
    envs = make("shoal/CartPole-v1", 2)
    with pytest.raises(ValueError, match="no reset option"):
        envs.reset(options={"gravity": 0.1})
    with pytest.raises(ValueError, match="seeds from 0"):
        envs.reset(seed=2**64)
    with pytest.raises(AttributeError, match="gravity"):
        envs.get_attr("gravity")
    with pytest.raises(AttributeError, match="np_random"):
        _ = envs.np_random
    assert envs.render_mode is None and envs.render() is None
    envs.reset(seed=0, options={})
    envs.step([0, 1])


def test_a_native_id_stands_by_itself() -> None:
    with pytest.raises(ValueError, match="by itself, not in a list"):
        shoal.make_vec(["shoal/CartPole-v1", "shoal/CartPole-v1"])


def test_a_native_worker_that_dies_is_a_worker_died() -> None:
    envs = shoal.make_vec("shoal/CartPole-v1", 4, backend="process", num_workers=2)
    envs.reset(seed=0)
    os.kill(envs.stats()["workers"][1]["pid"], signal.SIGKILL)
    with pytest.raises(shoal.WorkerDied, match="SIGKILL") as caught:
        for _ in range(10_000):
            envs.step([0, 1, 0, 1])
    assert caught.value.env_indices == range(2, 4)
    envs.close()
