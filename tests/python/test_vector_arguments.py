"""Arguments of vector environments' methods that no other test is about."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import shoal
from sample_envs import CounterEnv, GatedEnv, GatedResetEnv

GIVEN: dict[str, Any] = {"seed": [5, 6], "options": {"level": 7}}


@pytest.mark.parametrize("how", [{"backend": "serial"}, {"num_workers": 2}, {"num_workers": 2, "batch_size": 2}])
def test_every_way_to_reset_hands_on_seeds_and_options(how: dict[str, Any]) -> None:
    with shoal.make_vec(CounterEnv, 2, **how) as envs:
        told = [envs.reset(**GIVEN)[1]]
        envs.reset_async(**GIVEN)
        told.append(envs.reset_wait()[1])
        envs.async_reset(**GIVEN)
        told.append(envs.recv()[4])
    for infos in told:
        assert sorted(infos["seed"].tolist()) == [5, 6]  # recv() has them as they came
        assert infos["options"]["level"].tolist() == [7, 7]


def test_every_wait_has_a_timeout(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with shoal.make_vec(functools.partial(GatedResetEnv, gate), 2, num_workers=2) as envs:
        envs.reset()
        envs.step_async([1, 0])
        for wait in (envs.step_wait, envs.recv):
            with pytest.raises(TimeoutError):
                wait(timeout=0.01)
        gate.touch()
        assert envs.step_wait()[0].tolist() == [[1, 1], [1, 1]]
        gate.unlink()
        envs.reset_async()
        with pytest.raises(TimeoutError):
            envs.reset_wait(timeout=0.01)
        gate.touch()
        assert envs.reset_wait()[0].tolist() == [[2, 0], [2, 0]]


def test_what_is_in_flight_is_thrown_away_in_time(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with shoal.make_vec(functools.partial(GatedEnv, gate), 2, num_workers=2, batch_size=1) as envs:
        envs.reset()
        envs.send([1, 0], [0, 1])
        with pytest.raises(TimeoutError):
            envs.discard(timeout=0.01)
        gate.touch()
        envs.discard()
        assert envs.in_flight == 0
        _, rewards, _, _, infos = envs.step([2], env_ids=[1])
        assert infos["env_id"].tolist() == [1] and rewards.tolist() == [2.0]
