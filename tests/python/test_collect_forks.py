"""A collector is its maker's: in a forked child it raises, and leaves the maker's alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from collect_policies import MULTI, batches, zeros
from forked_child import in_child
from sample_envs import CounterEnv

WHERE: dict[str, dict[str, Any]] = {
    "this process": {"num_workers": 0},
    "workers": {"num_workers": 2},
    "cohorts": {"num_workers": 2, "cohorts": 2},
    **{mode: {"mode": mode, "num_collectors": 1} for mode in MULTI},
}
of_all = pytest.mark.parametrize("where", WHERE)
FRAMES = {"num_envs": 2, "frames_per_batch": 8, "total_frames": 24, "seed": 1}


def rows(batch: dict[str, Any]) -> list[Any]:
    observations: list[Any] = batch["obs"].tolist()
    return observations


@of_all
def test_every_call_names_the_process_that_made_it(where: str) -> None:
    with shoal.Collector(CounterEnv, zeros, **FRAMES, **WHERE[where]) as collector:
        next(collector)
        state = collector.state_dict()
        calls: list[Callable[[], Any]] = [
            lambda: next(collector),
            lambda: list(collector),
            lambda: collector.reset(seed=1),
            lambda: collector.pause(),
            lambda: collector.resume(),
            lambda: collector.update_weights(),
            lambda: collector.policy_version,
            lambda: collector.stats(),
            lambda: collector.state_dict(),
            lambda: collector.load_state_dict(state),
        ]
        expected = f"RuntimeError: this Collector was made by process {os.getpid()}; make new ones in a forked child"
        for call in calls:
            assert in_child(call).startswith(expected)
        assert len(list(collector)) == 2
        assert in_child(lambda: next(collector)).startswith(expected)  # where it would say that there are no more


@of_all
def test_a_child_leaves_the_collector_of_its_parent_as_it_is(where: str) -> None:
    """It stepped the environments of its parent."""
    box = [shoal.Collector(CounterEnv, zeros, **FRAMES, **WHERE[where])]

    def use_and_close() -> None:
        with pytest.raises(RuntimeError, match="made by process"):
            next(box[0])
        box[0].close()
        box[0].close()

    def let_go() -> None:
        box.clear()
        gc.collect()

    collected = []
    for _ in range(3):
        assert in_child(use_and_close) == in_child(let_go) == "done"
        collected.append(rows(next(box[0])))
    box[0].close()
    assert collected == [rows(batch) for batch in batches(CounterEnv, zeros, **FRAMES, **WHERE[where])]


@of_all
def test_a_child_may_make_its_own(where: str) -> None:
    def own() -> None:
        assert [rows(batch) for batch in batches(CounterEnv, zeros, **FRAMES, **WHERE[where])] == expected

    expected = [rows(batch) for batch in batches(CounterEnv, zeros, **FRAMES, **WHERE[where])]
    with shoal.Collector(CounterEnv, zeros, **FRAMES, **WHERE[where]) as collector:
        next(collector)
        assert in_child(own) == "done"
        assert len(list(collector)) == 2


def test_environments_of_the_process_itself_are_closed_by_it_alone(tmp_path: Path) -> None:
    class Closing(CounterEnv):
        def close(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    box = [shoal.Collector(Closing, zeros, frames_per_batch=2, num_workers=0)]
    next(box[0])

    def close_and_let_go() -> None:
        box[0].close()
        box.clear()
        gc.collect()

    assert in_child(close_and_let_go) == "done"
    assert not list(tmp_path.iterdir())
    assert np.isfinite(next(box[0])["obs"]).all()
    box[0].close()
    assert [file.name for file in tmp_path.iterdir()] == [str(os.getpid())]
