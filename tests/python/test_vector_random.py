"""Random programs (random_calls.py): Shoal's vector environments against gymnasium.vector.SyncVectorEnv.

pytest tests/python/test_vector_random.py --random-programs 5000 --random-seed 100000
"""

from __future__ import annotations

import dataclasses

import pytest

import random_calls

BATCH = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        first = metafunc.config.getoption("--random-seed")
        metafunc.parametrize("first", range(first, first + metafunc.config.getoption("--random-programs"), BATCH))


def test_random_programs_have_the_outcomes_of_gymnasiums(first: int) -> None:
    for seed in range(first, first + BATCH):
        random_calls.check(seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_program_has_the_same_outcome_on_any_number_of_workers(seed: int) -> None:
    setting, program = next(
        (setting, program)
        for setting, program in map(random_calls.draw, range(1000 * (seed + 1), 1000 * (seed + 2)))
        if not setting.exact and len(setting.lengths) > 3 and setting.mode != "disabled"
    )
    reuse = ["own", "shared"][seed % 2]
    setting = dataclasses.replace(setting, mode="same_step", reuse=reuse, statistics=seed % 3 != 0)
    random_calls.play(dataclasses.replace(setting, implementation="serial"), program)
    for workers in range(1, 5):
        random_calls.play(dataclasses.replace(setting, implementation="process", workers=workers), program)


def test_a_difference_is_found_and_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: this one breaks the 3rd step of ours."""
    setting, program = next(
        (setting, program)
        for setting, program in map(random_calls.draw, range(1000))
        if setting.implementation == "serial" and sum(name == "step" for name, _ in program) > 8
    )
    ours = random_calls.Setting.ours

    def broken(self: random_calls.Setting) -> object:
        envs, steps = ours(self), iter(range(100))
        step = envs.step

        def wrong_step(actions: object) -> object:
            result = step(actions)
            return (*result[:1], result[1] + (next(steps) >= 2), *result[2:])

        envs.step = wrong_step
        return envs

    monkeypatch.setattr(random_calls.Setting, "ours", broken)
    with pytest.raises(AssertionError, match="step"):
        random_calls.play(setting, program)
    assert [name for name, _ in random_calls.shrunk(setting, program)][2:] == ["step"] * 3
