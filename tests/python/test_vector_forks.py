"""Environments in worker processes are their maker's: in a forked child they raise, and leave the maker's alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shoal
from forked_child import in_child
from sample_envs import CounterEnv

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "together": (CounterEnv, {"num_workers": 2}),
    "one by one": (CounterEnv, {"num_workers": 2, "batch_size": 2}),
    "pool": (CounterEnv, {}),
    "native": ("shoal/CartPole-v1", {"backend": "process", "num_workers": 2}),
}


@pytest.fixture(params=KINDS)
def envs(request: pytest.FixtureRequest) -> Iterator[shoal.VectorEnv]:
    env, how = KINDS[request.param]
    with contextlib.ExitStack() as stack:
        if request.param == "pool":
            how = {"pool": stack.enter_context(shoal.WorkerPool(2))}
        yield stack.enter_context(shoal.make_vec(env, 2, **how))


def observed(envs: shoal.VectorEnv) -> list[Any]:
    rows: list[Any] = envs.step([0, 0])[0].tolist()
    return rows


def test_every_call_names_the_process_that_made_them(envs: shoal.VectorEnv) -> None:
    envs.reset(seed=0)
    taken = envs.snapshot()
    calls: list[Callable[[], Any]] = [
        lambda: envs.step([0, 0]),
        lambda: envs.reset(seed=1),
        lambda: envs.reset_async(),
        lambda: envs.async_reset(),
        lambda: envs.send([0, 0]),
        lambda: envs.recv(),
        lambda: envs.fileno(),
        lambda: envs.health(),
        lambda: envs.snapshot(),
        lambda: envs.restore(taken),
    ]
    if envs.spec is None:  # native ones have no attributes
        calls += [lambda: envs.get_attr("length"), lambda: envs.set_attr("length", 3)]
    for call in calls:
        assert in_child(call).startswith(
            f"RuntimeError: these environments were made by process {os.getpid()}; make new"
        )
    envs.send([0, 0])
    assert in_child(lambda: envs.recv()).startswith("RuntimeError: these environments were made by process")
    assert len(envs.recv()[0]) == 2


def test_a_child_leaves_the_environments_of_its_parent_as_they_are(envs: shoal.VectorEnv) -> None:
    def use_and_close() -> None:
        with pytest.raises(RuntimeError, match="made by process"):
            envs.step([1, 1])
        envs.close()
        envs.close(terminate=True)
        assert envs.closed

    envs.reset(seed=0)
    taken = envs.snapshot()
    first = [observed(envs) for _ in range(3)]
    envs.restore(taken)
    again = []
    for _ in range(3):
        assert in_child(use_and_close) == "done"
        again.append(observed(envs))
    assert again == first


def test_a_call_under_way_stays_the_parents(envs: shoal.VectorEnv) -> None:
    envs.reset(seed=0)
    envs.step_async([0, 0])
    assert in_child(lambda: envs.step_wait()).startswith("RuntimeError: these environments were made by")
    assert in_child(lambda: envs.close(timeout=5)) == "done"
    assert len(envs.step_wait()[0]) == 2


def test_a_pool_makes_nothing_in_a_child_which_may_make_its_own() -> None:
    def own() -> None:
        with shoal.make_vec(CounterEnv, 2, num_workers=1) as envs:
            envs.reset()

    with shoal.WorkerPool(1) as pool:
        for env in (CounterEnv, "shoal/CartPole-v1"):
            said = in_child(lambda env=env: shoal.make_vec(env, 2, pool=pool))  # type: ignore[misc]
            assert said.startswith(f"RuntimeError: this WorkerPool was made by process {os.getpid()}; make new ones")
        assert in_child(pool.close) == "done"
        assert in_child(own) == "done"
        with shoal.make_vec(CounterEnv, 2, pool=pool) as envs:
            assert len(envs.reset()[0]) == 2


@pytest.mark.parametrize(("env", "backend"), [(CounterEnv, "serial"), ("shoal/CartPole-v1", "thread")])
def test_environments_of_the_process_itself_are_copied_with_it(env: Any, backend: str) -> None:
    with shoal.make_vec(env, 2, backend=backend) as envs:
        envs.reset(seed=0)
        assert in_child(lambda: envs.step([0, 0])) == "done"
