"""reset() of shoal.make_vec: seeds, options, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError

from sample_envs import CounterEnv
from vector_backends import PYTHON_BACKENDS, Make, make_on

make = make_on(PYTHON_BACKENDS)


def test_an_int_seeds_environment_i_with_seed_plus_i(make: Make) -> None:
    envs = make(CounterEnv, 3)
    assert envs.reset(seed=np.int64(10))[1]["seed"].tolist() == [10, 11, 12]


@pytest.mark.parametrize("seeds", [(4, None, 2**64 - 1), [2**64 + 5, None, 2**80], np.arange(3)])
def test_a_sequence_seeds_each_environment_by_itself(make: Make, seeds: Any) -> None:
    envs = make(CounterEnv, 3)
    envs.reset(seed=seeds)
    assert envs.get_attr("seed") == tuple(seeds)
    envs.reset()
    assert envs.get_attr("seed") == (None, None, None)


@pytest.mark.parametrize("seed", [-3, [1, -1], np.int64(-1)])
def test_a_negative_seed_is_refused_before_anything_is_done(make: Make, seed: Any) -> None:
    envs = make(CounterEnv, 2)
    envs.reset(seed=5)
    with pytest.raises(ValueError, match="seed takes ints of 0 or more"):
        envs.reset(seed=seed)
    assert envs.get_attr("seed") == (5, 6)
    with pytest.raises(ValueError, match="seed takes ints of 0 or more"):
        make(CounterEnv, 2, seed=seed)


@pytest.mark.parametrize("seed", [[1], [1, 2, 3], ()])
def test_a_wrong_number_of_seeds_is_refused(make: Make, seed: Any) -> None:
    with pytest.raises(ValueError, match="the length must match num_envs=2"):
        make(CounterEnv, 2).reset(seed=seed)


@pytest.mark.parametrize("seed", ["abc", 1.5, [1.5, 2]])
def test_a_seed_that_is_no_number_is_refused(make: Make, seed: Any) -> None:
    with pytest.raises(TypeError):
        make(CounterEnv, 2).reset(seed=seed)


def test_the_seed_of_make_vec_serves_the_first_reset_only(make: Make) -> None:
    envs = make(CounterEnv, 2, seed=20)
    assert envs.reset()[1]["seed"].tolist() == [20, 21]
    assert envs.reset()[1] == {}
    assert make(CounterEnv, 2, seed=20).reset(seed=1)[1]["seed"].tolist() == [1, 2]


@pytest.mark.parametrize("seeds", [[20, 21, 22], [2**64 + 5, 21, None]])
@pytest.mark.parametrize("one_by_one", [{}, {"batch_size": 3}])
def test_an_environment_that_a_mask_left_out_keeps_its_seed_of_make_vec(
    make: Make, one_by_one: dict[str, int], seeds: list[int | None]
) -> None:
    envs = make(CounterEnv, 3, seed=seeds, **one_by_one)

    def seeds_of_reset(**arguments: Any) -> tuple[Any, ...]:
        envs.set_attr("seed", "not reset")
        envs.reset(**arguments)
        return envs.get_attr("seed")

    first = {"reset_mask": np.array([True, False, False])}
    with pytest.raises(TypeError, match="numpy array"):
        envs.reset(options={"reset_mask": [True, False, False]})
    assert seeds_of_reset(options=first) == (seeds[0], "not reset", "not reset")
    assert seeds_of_reset(options=first) == (None, "not reset", "not reset")
    assert seeds_of_reset(seed=7, options=first) == (7, "not reset", "not reset")
    assert seeds_of_reset() == (None, *seeds[1:])
    assert seeds_of_reset() == (None, None, None)


def test_a_mask_of_async_reset_leaves_the_other_seeds_of_make_vec(make: Make) -> None:
    envs = make(CounterEnv, 2, seed=20, batch_size=1)
    for env, others in ((1, [True, False]), (0, [False, True])):
        envs.async_reset(options={"reset_mask": ~np.array(others)})
        with pytest.raises(AlreadyPendingCallError):
            envs.async_reset(options={"reset_mask": ~np.array(others)})
        infos = envs.recv()[-1]
        assert (infos["env_id"].tolist(), infos["seed"].tolist()) == ([env], [20 + env])
    envs.async_reset()
    assert not any("seed" in envs.recv()[-1] for _ in range(2))


def test_autoresets_carry_no_seed_and_no_options(make: Make) -> None:
    envs = make(CounterEnv, 2, env_kwargs={"length": 1}, autoreset_mode="same_step")
    assert set(envs.reset(seed=1, options={"x": 1})[1]) == {"seed", "_seed", "options", "_options"}
    infos = envs.step([0, 0])[-1]
    assert set(infos) == {"final_obs", "_final_obs", "final_info", "_final_info"}


def test_options_reach_every_environment_as_they_are(make: Make) -> None:
    options = {"level": [1, 2], "easy": lambda: 3}
    envs = make(CounterEnv, 3)
    infos = envs.reset(seed=1, options={"level": options["level"]})[1]
    assert infos["options"]["level"].tolist() == [[1, 2]] * 3
    assert "options" not in envs.reset()[1]
    envs.reset(options=options)


def test_a_mask_resets_what_it_selects_and_leaves_the_rest(make: Make) -> None:
    envs = make(CounterEnv, 3)
    envs.reset(seed=0)
    envs.step([0, 0, 0])
    options = {"reset_mask": np.array([False, True, False])}
    observations, infos = envs.reset(seed=[5, 6, 7], options=options)
    assert observations.tolist() == [[1, 1], [2, 0], [1, 1]]
    assert infos["_seed"].tolist() == [False, True, False] and infos["seed"][1] == 6
    assert "reset_mask" in options  # the caller's dict is the caller's
    assert envs.step([0, 0, 0])[0].tolist() == [[1, 2], [2, 1], [1, 2]]


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        ([True, False], TypeError, "must be a numpy array"),
        (np.array([True]), ValueError, r"must have shape `\(2,\)`"),
        (np.array([1, 0]), TypeError, "dtype=np.bool_"),
        (np.array([False, False]), ValueError, "at least one True"),
    ],
)
def test_a_wrong_mask_is_refused(make: Make, mask: Any, error: type[Exception], text: str) -> None:
    envs = make(CounterEnv, 2)
    envs.reset(seed=0)
    with pytest.raises(error, match=text):
        envs.reset(options={"reset_mask": mask})
    envs.step([0, 0])


def test_a_mask_that_is_not_contiguous_is_read_right(make: Make) -> None:
    envs = make(CounterEnv, 3)
    envs.reset(seed=0)
    mask = np.array([True, False, False, False, True, False])[::2]
    assert envs.reset(options={"reset_mask": mask})[0].tolist() == [[2, 0], [1, 0], [2, 0]]
