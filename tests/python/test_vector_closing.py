"""Closing: every environment is closed, whatever others raise, and what they raised is told."""

from __future__ import annotations

import functools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

import shoal
from interrupting import interrupted_once_there
from log_records import Records
from sample_envs import CounterEnv
from shoal.compat.gymnasium import AsyncVectorEnv, SyncVectorEnv

NUM_ENVS = 4

Make = Callable[..., Any]


class Closing(CounterEnv):
    """Leaves a file where it was closed, and then raises, ends its process, or waits for another file."""

    def __init__(self, folder: Path, number: int, how: str = "") -> None:
        super().__init__()
        self.folder, self.number, self.how = folder, number, how

    def close(self) -> None:
        with open(self.folder / f"closed {self.number}", "a") as file:
            file.write("once ")
        if self.how == "raise":
            raise ValueError(f"{self.number} does not want to")
        if self.how == "end":
            os._exit(3)
        if self.how == "interrupt":
            signal.raise_signal(signal.SIGINT)
        while self.how == "wait" and not (self.folder / "gate").exists():
            time.sleep(0.001)


def refuse() -> CounterEnv:
    raise LookupError("not built")


@pytest.fixture(params=["serial", "process", "process, one worker", "async serial", "async process", "pool", "sync"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    pools: list[shoal.WorkerPool] = []

    def make_one(factories: list[Any]) -> Any:
        if request.param == "sync":
            return SyncVectorEnv(factories)
        if request.param == "pool":
            pools.append(shoal.WorkerPool(2))
        ways: dict[str, dict[str, Any]] = {
            "serial": {"backend": "serial"},
            "process": {"num_workers": 2},
            "process, one worker": {"backend": "process", "num_workers": 1},
            "async serial": {"backend": "serial", "batch_size": 2},
            "async process": {"num_workers": 2, "batch_size": 2},
            "pool": {"pool": pools[-1] if pools else None},
        }
        return shoal.make_vec(factories, **ways[request.param])

    yield make_one
    for pool in pools:
        pool.close()


def factories(folder: Path, **how: str) -> list[Any]:
    """Environment i is closed as how["env<i>"] says."""
    return [functools.partial(Closing, folder, i, how.get(f"env{i}", "")) for i in range(NUM_ENVS)]


def closed(folder: Path) -> list[int]:
    files = sorted(folder.glob("closed *"))
    assert all(file.read_text() == "once " for file in files)
    return [int(file.name.split()[1]) for file in files]


def test_all_are_closed_and_the_first_failure_is_raised_with_the_others(make: Make, tmp_path: Path) -> None:
    envs = make(factories(tmp_path, env0="raise", env2="raise"))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="0 does not want to") as raised:
        envs.close()
    assert closed(tmp_path) == [0, 1, 2, 3]
    notes = "\n".join(getattr(raised.value, "__notes__", ["environment 0: close() environment 2 2 does not want to"]))
    assert "environment 0: close()" in notes and "environment 2" in notes and "2 does not want to" in notes
    assert envs.closed
    envs.close()


def test_what_is_raised_in_a_worker_has_its_traceback(tmp_path: Path) -> None:
    envs = shoal.make_vec(factories(tmp_path, env3="raise"), num_workers=2)
    with pytest.raises(ValueError, match="3 does not want to") as raised:
        envs.close()
    cause = raised.value.__cause__
    assert isinstance(cause, shoal.errors.RemoteTraceback) and cause.env_index == 3
    assert "raise ValueError" in cause.traceback


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_worker_that_ends_while_its_environments_close_is_told(
    tmp_path: Path, records: Records, batch_size: int | None
) -> None:
    envs = shoal.make_vec(factories(tmp_path, env0="end"), num_workers=2, batch_size=batch_size)
    envs.close()
    said = r"worker 0 \(pid \d+, environments 0 to 1\) ended with exit code 3 before its environments were closed"
    assert re.fullmatch(said, records.next().getMessage())
    assert closed(tmp_path) == [0, 2, 3]


def test_a_worker_is_killed_whose_environments_take_too_long_to_close(tmp_path: Path, records: Records) -> None:
    envs = shoal.make_vec(factories(tmp_path, env3="wait"), num_workers=2)
    envs.close(timeout=0.5)
    said = "worker 1 (environments 2 to 3) is killed: its environments did not close in time"
    assert records.next().getMessage() == said
    envs = shoal.make_vec(factories(tmp_path, env3="wait"), num_workers=2)
    envs.close(terminate=True)
    shoal._core.log.write("warning", "vector", "after it")
    assert records.next().getMessage() == "after it", "nobody waited for those"


def test_the_compat_class_logs_it_and_goes_on_as_the_peer(tmp_path: Path) -> None:
    envs = AsyncVectorEnv(factories(tmp_path, env1="raise", env2="raise"), num_workers=2)
    envs.reset(seed=0)
    with pytest.warns(UserWarning, match="does not want to") as warned:
        envs.close()
    assert closed(tmp_path) == [0, 1, 2, 3]
    said = "\n".join(str(warning.message) for warning in warned)
    assert "Worker-1" in said and "Worker-2" in said


def test_one_that_cannot_be_built_is_told_though_another_does_not_close(make: Make, tmp_path: Path) -> None:
    some = [*factories(tmp_path), functools.partial(Closing, tmp_path, 4), refuse]
    some[3] = functools.partial(Closing, tmp_path, 3, "raise")
    with pytest.raises(LookupError, match="not built"):
        make(some)
    # With two workers the first one, which is well, is killed, be it while it writes that it closes.
    assert [(tmp_path / f"closed {i}").read_text() for i in (3, 4)] == ["once "] * 2


def test_a_pool_that_is_closed_closes_the_environments_of_all_and_says_what_they_raised(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = shoal.WorkerPool(1)
    (tmp_path / "other").mkdir()
    made = [shoal.make_vec(factories(folder, env1="raise"), pool=pool) for folder in (tmp_path, tmp_path / "other")]
    pool.close()
    assert closed(tmp_path) == closed(tmp_path / "other") == [0, 1, 2, 3]
    said = ""
    while said.count("ValueError: 1 does not want to") < 2:  # their output is passed on by a thread
        said += capfd.readouterr().err
    for envs in made:
        envs.close()


def test_one_that_is_replaced_by_a_snapshot_may_fail_to_close(make: Make, tmp_path: Path) -> None:
    envs = make(factories(tmp_path))
    envs.reset(seed=0)
    snapshot = envs.snapshot()
    envs.set_attr("how", "raise")
    envs.restore(snapshot)
    envs.step([1] * NUM_ENVS)
    envs.close()


class Other(Closing):
    action_space = spaces.Discrete(7)


def test_environments_that_do_not_go_together_are_closed(make: Make, tmp_path: Path) -> None:
    some = factories(tmp_path, env2="raise")
    some[3] = functools.partial(Other, tmp_path, 3)
    with pytest.raises((ValueError, RuntimeError), match=r"same action_space|action space"):
        make(some)
    # With two workers the first one, which is well, is killed, be it while it writes that it closes.
    assert [(tmp_path / f"closed {i}").read_text() for i in (2, 3)] == ["once "] * 2


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}], ids=["synchronous", "asynchronous"])
def test_ctrl_c_in_an_environments_close_keeps_none_from_being_closed(
    arguments: dict[str, Any], tmp_path: Path
) -> None:
    envs = shoal.make_vec(factories(tmp_path, env0="raise", env1="interrupt"), backend="serial", **arguments)
    with pytest.raises(KeyboardInterrupt):
        envs.close()
    assert closed(tmp_path) == [0, 1, 2, 3]
    assert envs.closed


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}], ids=["synchronous", "asynchronous"])
def test_ctrl_c_while_workers_close_ends_them(arguments: dict[str, Any], tmp_path: Path) -> None:
    envs = shoal.make_vec(factories(tmp_path, env1="wait"), num_workers=2, **arguments)
    pids = [worker["pid"] for worker in envs.stats()["workers"]]
    with interrupted_once_there(tmp_path / "closed 1"):
        envs.close(timeout=1e6)  # who waits for the environment waits for ever
    assert envs.closed
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
