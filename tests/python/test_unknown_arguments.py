"""An argument that there is not is named, with the one that was meant."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from typing import Any

import pytest

import shoal


def collector(**options: Any) -> shoal.Collector:
    return shoal.Collector("CartPole-v1", None, **options)


def vec_env(**options: Any) -> Any:
    pytest.importorskip("stable_baselines3")
    from shoal.compat.sb3 import SubprocVecEnv

    return SubprocVecEnv([], **options)


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (shoal.WorkerOptions, "thread", "threads"),
        (shoal.FaultPolicy, "max_restart", "max_restarts"),
        (collector, "frames_per_batc", "frames_per_batch"),
        (vec_env, "num_worker", "num_workers"),
    ],
    ids=["WorkerOptions", "FaultPolicy", "Collector", "SubprocVecEnv"],
)
def test_the_argument_that_was_meant_is_named(call: Any, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^\w+\(\) has no argument '{name}'\. Did you mean '{meant}'\?$"):
        call(**{name: 1})


def test_where_none_is_near_all_are_named() -> None:
    with pytest.raises(TypeError, match=r"^FaultPolicy\(\) has no argument 'zzz'; there are on_fault, max_restarts, "):
        shoal.FaultPolicy(zzz=1)  # type: ignore[call-arg]  # what is tested


def test_a_class_stays_what_it_is() -> None:
    names = [field.name for field in dataclasses.fields(shoal.WorkerOptions)]
    assert list(inspect.signature(shoal.WorkerOptions).parameters) == names
    assert shoal.WorkerOptions(2).threads == 2
    options = dataclasses.replace(shoal.WorkerOptions(threads=3), gpu="own")
    assert pickle.loads(pickle.dumps(options)) == options == shoal.WorkerOptions(threads=3, gpu="own")
