"""shoal.make_vec against gymnasium.vector.SyncVectorEnv: the same calls give the same everything."""

from __future__ import annotations

import functools
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import shoal
from same import assert_same
from sample_envs import SPACES, CounterEnv, SpaceEnv

BACKENDS = {
    "serial": {"backend": "serial"},
    "process-1": {"backend": "process", "num_workers": 1},
    "process-2": {"backend": "process", "num_workers": 2},
}
MODES = ["next_step", "same_step", "disabled"]


def both(factory: Any, num_envs: int, backend: str, mode: str, **options: Any) -> tuple[shoal.VectorEnv, SyncVectorEnv]:
    ours = shoal.make_vec(factory, num_envs, autoreset_mode=mode, **BACKENDS[backend], **options)
    theirs = SyncVectorEnv([factory] * num_envs, autoreset_mode=getattr(AutoresetMode, mode.upper()))
    return ours, theirs


def play_both(ours: shoal.VectorEnv, theirs: SyncVectorEnv, steps: int, seed: int = 5) -> None:
    ours.action_space.seed(seed)
    theirs.action_space.seed(seed)
    assert_same(ours.reset(seed=seed), theirs.reset(seed=seed), "reset")
    for step in range(steps):
        actions, same_actions = ours.action_space.sample(), theirs.action_space.sample()
        assert_same(actions, same_actions, "action_space.sample()")
        result, expected = ours.step(actions), theirs.step(same_actions)
        # Final observations come in the space's dtype, where Gymnasium hands an int on as it is.
        assert_same(result, expected, f"step {step}", numbers_as_numpys=True)
        ended = result[2] | result[3]
        if ours.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            assert_same(
                ours.reset(options={"reset_mask": ended}), theirs.reset(options={"reset_mask": ended}), f"reset {step}"
            )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("observation", SPACES)
def test_trajectories_equal_gymnasiums_for_every_observation_space(observation: str, backend: str, mode: str) -> None:
    ours, theirs = both(functools.partial(SpaceEnv, observation), 3, backend, mode)
    with_closing(ours, lambda: play_both(ours, theirs, 60))


@pytest.mark.parametrize("backend", ["serial", "process-2"])
@pytest.mark.parametrize("action", SPACES)
def test_actions_reach_the_environment_as_gymnasium_passes_them(action: str, backend: str) -> None:
    ours, theirs = both(functools.partial(SpaceEnv, "box", action), 3, backend, "next_step")
    with_closing(ours, lambda: play_both(ours, theirs, 25))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "Blackjack-v1", "FrozenLake-v1"])
def test_registered_environments_equal_gymnasiums(env_id: str, backend: str, mode: str) -> None:
    ours = shoal.make_vec(env_id, 5, autoreset_mode=mode, **BACKENDS[backend])
    theirs = SyncVectorEnv(
        [functools.partial(gymnasium.make, env_id)] * 5, autoreset_mode=getattr(AutoresetMode, mode.upper())
    )
    with_closing(ours, lambda: play_both(ours, theirs, 250))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("observation", ["box", "nested"])
def test_spaces_and_attributes_equal_gymnasiums(observation: str, backend: str) -> None:
    ours, theirs = both(functools.partial(SpaceEnv, observation, render_mode="rgb_array"), 3, backend, "same_step")

    def check() -> None:
        for name in ("single_observation_space", "observation_space", "single_action_space", "action_space"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert isinstance(ours, gymnasium.vector.VectorEnv)
        assert ours.metadata == theirs.metadata
        assert "autoreset_mode" not in SpaceEnv.metadata
        assert (ours.num_envs, ours.render_mode, ours.spec, ours.closed) == (3, "rgb_array", None, False)
        assert ours.unwrapped is ours
        assert repr(ours) == "VectorEnv(num_envs=3)"

    with_closing(ours, check)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_the_same_seeds_give_the_same_bits_for_any_number_of_workers(workers: int) -> None:
    def trajectory(envs: shoal.VectorEnv) -> list[Any]:
        actions = envs.single_action_space
        actions.seed(0)
        results: list[Any] = [envs.reset(seed=[9, 7, 2, 0])]
        results += [envs.step([actions.sample() for _ in range(4)]) for _ in range(100)]
        envs.close()
        return results

    factory = functools.partial(SpaceEnv, "dict", "box_bounds")
    serial = trajectory(shoal.make_vec(factory, 4, backend="serial"))
    parallel = trajectory(shoal.make_vec(factory, 4, backend="process", num_workers=workers))
    for i, (ours, reference) in enumerate(zip(parallel, serial, strict=True)):
        assert_same(ours, reference, f"call {i}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_next_step_mode_ignores_the_action_and_resets_in_the_step_after_the_last(backend: str) -> None:
    envs = shoal.make_vec(CounterEnv, 2, env_kwargs={"length": 2}, **BACKENDS[backend])

    def check() -> None:
        envs.reset(seed=0)
        envs.step([1, 1])
        observations, rewards, terminated, _, infos = envs.step([2, 2])
        assert observations.tolist() == [[1, 2], [1, 2]] and terminated.all() and infos == {}
        observations, rewards, terminated, _, infos = envs.step([1, 1])
        assert observations.tolist() == [[2, 0], [2, 0]] and not terminated.any() and rewards.tolist() == [0, 0]
        assert infos == {}

    with_closing(envs, check)


@pytest.mark.parametrize("backend", BACKENDS)
def test_same_step_mode_keeps_the_last_observation_as_a_copy_of_its_own(backend: str) -> None:
    envs = shoal.make_vec(CounterEnv, 2, env_kwargs={"length": 1}, autoreset_mode="same_step", **BACKENDS[backend])

    def check() -> None:
        envs.reset(seed=0)
        observations, _, terminated, _, infos = envs.step([1, 1])
        first = infos["final_obs"][1]
        assert observations.tolist() == [[2, 0], [2, 0]] and terminated.all() and first.tolist() == [1, 1]
        assert infos["_final_obs"].tolist() == [True, True] and infos["final_info"] == {}
        envs.step([0, 0])
        assert first.tolist() == [1, 1]

    with_closing(envs, check)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_explicit_reset_cancels_a_pending_autoreset(backend: str, mode: str) -> None:
    envs = shoal.make_vec(CounterEnv, 2, env_kwargs={"length": 1}, autoreset_mode=mode, **BACKENDS[backend])

    def check() -> None:
        envs.reset(seed=0)
        envs.step([0, 0])
        resets = envs.reset()[0][0, 0]
        observations, rewards, *_ = envs.step([2, 2])
        assert rewards.tolist() == [2.0, 2.0]
        if mode != "same_step":
            assert observations.tolist() == [[resets, 1]] * 2

    with_closing(envs, check)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copy_true_gives_arrays_of_the_callers_own(backend: str) -> None:
    envs = shoal.make_vec(functools.partial(SpaceEnv, "nested"), 2, **BACKENDS[backend])

    def check() -> None:
        first = envs.reset(seed=1)[0]
        kept = {"flag": first["flag"].copy(), "outer": first["outer"][1].copy()}
        second = envs.step(envs.action_space.sample())[0]
        assert second["flag"] is not first["flag"]
        assert np.array_equal(first["flag"], kept["flag"]) and np.array_equal(first["outer"][1], kept["outer"])
        first["flag"][:] = 1  # writable, and nobody else's
        assert first["flag"].flags.owndata

    with_closing(envs, check)


@pytest.mark.parametrize("backend", BACKENDS)
def test_copy_false_gives_live_views_that_outlive_the_environments(backend: str) -> None:
    envs = shoal.make_vec(CounterEnv, 2, copy=False, **BACKENDS[backend])
    view = envs.reset(seed=1)[0]
    assert envs.step([0, 0])[0] is view
    assert view.tolist() == [[1, 1], [1, 1]]
    envs.close()
    del envs
    assert view.tolist() == [[1, 1], [1, 1]]


def with_closing(envs: shoal.VectorEnv, body: Any) -> None:
    try:
        body()
    finally:
        envs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_masked_resets_between_steps_equal_gymnasiums(backend: str, mode: str) -> None:
    ours, theirs = both(functools.partial(SpaceEnv, "dict"), 4, backend, mode)

    def play() -> None:
        draws = np.random.default_rng(1)
        assert_same(ours.reset(seed=2), theirs.reset(seed=2), "reset")
        for step in range(80):
            actions = draws.integers(0, 5, 4)
            result = ours.step(actions)
            assert_same(result, theirs.step(actions), f"step {step}")
            mask = draws.random(4) < 0.2
            if mode == "disabled":
                mask |= result[2] | result[3]
            if mask.any():
                again = [ours.reset(seed=[step] * 4, options={"reset_mask": mask, "step": step})]
                again += [theirs.reset(seed=[step] * 4, options={"reset_mask": mask, "step": step})]
                assert_same(*again, f"reset {step}")

    with_closing(ours, play)


OBSERVATIONS: dict[str, tuple[spaces.Space, Any, Any]] = {
    "list": (spaces.Box(-9, 9, (3,), np.float32), [1, 2.5, 3], [1, 2.5, 3]),
    "tuple": (spaces.Box(-9, 9, (3,), np.float32), (1, 2, 3), [1, 2, 3]),
    "float64": (spaces.Box(-9, 9, (2,), np.float32), np.array([0.1, 1e-9]), np.array([0.1, 1e-9], np.float32).tolist()),
    "float16": (spaces.Box(-9, 9, (2,), np.float64), np.array([0.5, 2], np.float16), [0.5, 2]),
    "big-endian": (spaces.Box(-9, 9, (2,), np.float32), np.array([1, 2], ">f4"), [1, 2]),
    "fortran": (
        spaces.Box(0, 9, (2, 3), np.uint8),
        np.asfortranarray([[1, 2, 3], [4, 5, 6]], np.uint8),
        [[1, 2, 3], [4, 5, 6]],
    ),
    "strided": (spaces.Box(0, 9, (2,), np.int64), np.arange(6)[::3], [0, 3]),
    "reversed": (spaces.Box(0, 9, (3,), np.int64), np.arange(3)[::-1], [2, 1, 0]),
    "broadcast": (spaces.Box(0, 9, (3,), np.float32), np.broadcast_to(np.float32(4), 3), [4, 4, 4]),
    "integers into uint8": (spaces.Box(0, 255, (2,), np.uint8), np.array([0, 255]), [0, 255]),
    "whole floats into uint8": (spaces.Box(0, 255, (2,), np.uint8), np.array([3.0, 255.0]), [3, 255]),
    "booleans": (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
    "infinite": (spaces.Box(-np.inf, np.inf, (2,), np.float32), np.array([np.inf, -np.inf]), [np.inf, -np.inf]),
    "int": (spaces.Discrete(5), 3, 3),
    "int32": (spaces.Discrete(5), np.int32(3), 3),
    "0-d": (spaces.Discrete(5), np.array(3), 3),
    "whole float": (spaces.Discrete(5), 3.0, 3),
    "python float": (spaces.Box(0, 1, (), np.float32), 0.25, 0.25),
    "subclass": (spaces.Box(0, 9, (2,), np.float32), np.ma.array([1, 2], np.float32), [1, 2]),
    "empty": (spaces.Box(0, 9, (0,), np.float32), np.zeros(0, np.float32), []),
    "mapping": (spaces.Dict(a=spaces.Discrete(3)), types.MappingProxyType({"a": 2, "unknown": 1}), {"a": 2}),
    "list for tuple": (spaces.Tuple([spaces.Discrete(3), spaces.Discrete(4)]), [2, 3], (2, 3)),
}


@pytest.mark.parametrize("backend", ["serial", "process-1"])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_an_observation_may_come_in_any_form_that_keeps_its_values(name: str, backend: str) -> None:
    space, observation, expected = OBSERVATIONS[name]

    class Env(CounterEnv):
        observation_space = space

        def _observation(self) -> Any:
            return dict(observation) if name == "mapping" else observation

    envs = shoal.make_vec(Env, 2, **BACKENDS[backend])

    def check() -> None:
        got = envs.reset()[0]
        if isinstance(expected, dict):
            assert {key: value.tolist() for key, value in got.items()} == {key: [v, v] for key, v in expected.items()}
        elif isinstance(expected, tuple):
            assert [value.tolist() for value in got] == [[v, v] for v in expected]
        else:
            assert got.tolist() == [expected, expected] and got.dtype == space.dtype

    with_closing(envs, check)
