"""Large observations are lent to the caller: results stay as they were for as long as they are held."""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import shoal

LARGE = (64, 64, 4)  # 8 of them are beyond what is copied


class TickEnv(gymnasium.Env):
    """Every element of its observation is the number of steps since the reset, the seed's last digit ahead of it."""

    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, LARGE, np.uint8), "tick": spaces.Box(0, np.inf, (2,), np.float64)}
    )
    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 1000) -> None:
        self.length = length
        self.tick = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self.tick = 100 * (seed % 2) if seed is not None else 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        self.tick += 1
        return self._observation(), float(self.tick), self.tick % 100 >= self.length, False, {}

    def _observation(self) -> dict[str, np.ndarray]:
        return {"image": np.full(LARGE, self.tick % 256, np.uint8), "tick": np.full(2, self.tick, np.float64)}


@pytest.fixture
def envs() -> Any:
    made = shoal.make_vec(TickEnv, 8, num_workers=2)
    yield made
    made.close()


def ticks(observations: dict[str, np.ndarray]) -> list[int]:
    """The tick of every environment; all elements of an environment must agree."""
    for row, tick in enumerate(observations["tick"][:, 0]):
        assert (observations["image"][row] == tick % 256).all()
        assert (observations["tick"][row] == tick).all()
    return observations["tick"][:, 0].astype(int).tolist()


def is_lent(array: np.ndarray) -> bool:
    return array.base is not None


def test_results_that_are_dropped_are_lent_one_after_the_other(envs: Any) -> None:
    observations, _ = envs.reset()
    for step in range(1, 20):
        previous = observations
        observations = envs.step([0] * 8)[0]
        assert is_lent(observations["image"])
        assert ticks(observations) == [step] * 8
        assert ticks(previous) == [step - 1] * 8


def test_results_that_are_kept_stay_as_they_were(envs: Any) -> None:
    kept = [envs.reset()[0]]
    kept += [envs.step([0] * 8)[0] for _ in range(10)]
    assert [ticks(observations) for observations in kept] == [[step] * 8 for step in range(11)]
    assert not is_lent(kept[-1]["image"]), "with all sets held, a result is a copy"
    kept.clear()
    assert is_lent(envs.step([0] * 8)[0]["image"])


def test_a_part_of_a_result_keeps_all_of_it(envs: Any) -> None:
    corner = envs.reset()[0]["image"][3, :2, :2]
    for _ in range(5):
        envs.step([0] * 8)
    assert (corner == 0).all()


def test_a_result_belongs_to_the_caller(envs: Any) -> None:
    observations, _ = envs.reset()
    observations["image"][:] = 77
    after = envs.step([0] * 8)[0]
    assert ticks(after) == [1] * 8
    assert (observations["image"] == 77).all()


def test_results_outlive_the_environments() -> None:
    envs = shoal.make_vec(TickEnv, 8, num_workers=2)
    observations, _ = envs.reset(seed=[1] * 8)
    envs.close()
    del envs
    gc.collect()
    assert ticks(observations) == [100] * 8


def test_a_masked_reset_leaves_the_other_rows_alone(envs: Any) -> None:
    kept = [envs.reset()[0], envs.step([0] * 8)[0], envs.step([0] * 8)[0]]
    mask = np.array([True, False] * 4)
    observations, _ = envs.reset(seed=[1] * 8, options={"reset_mask": mask})
    assert ticks(observations) == [100, 2] * 4
    del kept[1:]
    observations, _ = envs.reset(seed=[1] * 8, options={"reset_mask": ~mask})
    assert ticks(observations) == [100] * 8
    assert ticks(kept[0]) == [0] * 8


def test_the_rows_of_a_dead_worker_are_whole() -> None:
    envs = shoal.make_vec(TickEnv, 8, num_workers=2, on_fault="restart")
    first = envs.reset()[0]
    second = envs.step([0] * 8)[0]
    third, _, _, truncated, _ = envs.step([0, 0, 2, 0, 0, 0, 0, 0])
    assert truncated.tolist() == [True] * 4 + [False] * 4
    assert all(tick in (1, 2) for tick in ticks(third)[:4])
    assert ticks(third)[4:] == [2] * 4
    for step in range(3, 100_000):
        later, _, _, _, infos = envs.step([0] * 8)
        assert ticks(later)[4:] == [step] * 4
        if "down" not in infos:
            break
        assert all(tick in (1, 2) for tick in ticks(later)[:4])
    assert ticks(later)[:4] == [0] * 4
    assert ticks(first) == [0] * 8
    assert ticks(second) == [1] * 8
    envs.close()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_lent_and_copied_results_are_equal(mode: str) -> None:
    lent = shoal.make_vec(lambda: TickEnv(3), 8, num_workers=2, autoreset_mode=mode)
    serial = shoal.make_vec(lambda: TickEnv(3), 8, backend="serial", autoreset_mode=mode)
    assert ticks(lent.reset(seed=0)[0]) == ticks(serial.reset(seed=0)[0])
    for _ in range(10):
        one, other = lent.step([0] * 8), serial.step([0] * 8)
        assert ticks(one[0]) == ticks(other[0])
        assert one[2].tolist() == other[2].tolist()
        assert ("final_obs" in one[4]) == ("final_obs" in other[4])
    lent.close()
    serial.close()


def test_views_are_lent_only_where_copies_were_asked_for() -> None:
    envs = shoal.make_vec(TickEnv, 8, num_workers=2, copy=False)
    first, _ = envs.reset()
    second = envs.step([0] * 8)[0]
    assert second["image"] is first["image"]
    envs.close()
