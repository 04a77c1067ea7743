"""Pools of Shoal's own contexts: tensors and arrays of tasks and results stay where they are."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shoal.multiprocessing as mp
from shoal._core import ipc
from shoal.errors import WorkerDied

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]
LONG = 60.0


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Makes pools, which are gone when the test is."""
    pools: list[Any] = []

    def make_one(method: str | None, *args: Any, **options: Any) -> Any:
        pools.append((mp if method is None else mp.get_context(method)).Pool(*args, **options))
        return pools[-1]

    yield make_one
    for pool in pools:
        pool.terminate()
        pool.join()


def is_in_heap(array: np.ndarray) -> bool:
    return bool(ipc.is_shared_array(array))


def fill(array: np.ndarray, value: int) -> tuple[bool, np.ndarray]:
    array[:] = value
    return is_in_heap(array), array


def wait_for_blocks(count: int) -> int:
    """Workers let go of their last task when the next one comes, or they end."""
    for _ in range(1000):
        gc.collect()
        ipc.sweep()
        if ipc.stats()["blocks"] <= count:
            break
        time.sleep(0.01)
    return ipc.stats()["blocks"]


@pytest.mark.parametrize("method", METHODS)
def test_a_shared_array_is_one_for_pool_and_workers(method: str, make: Callable[..., Any]) -> None:
    pool = make(method, 2)
    array = mp.SharedArray(np.zeros(10_000))
    in_heap, back = pool.apply(fill, (array, 7))
    assert in_heap and is_in_heap(back)
    assert array.tolist() == [7] * 10_000
    assert back.__array_interface__["data"] == array.__array_interface__["data"]


@pytest.mark.parametrize("method", METHODS)
def test_results_that_are_new_there_arrive_without_a_copy(method: str, make: Callable[..., Any]) -> None:
    pool = make(method, 2)
    arrays = pool.map(lambda i: np.full(5000, i), range(20), chunksize=3)
    assert all(isinstance(array.base, ipc.OwnBlock) for array in arrays)
    assert [int(array[4999]) for array in arrays] == list(range(20))
    assert [int(array[0]) for array in pool.imap(lambda i: np.full(5000, i), range(10))] == list(range(10))
    assert {int(array[0]) for array in pool.imap_unordered(lambda i: np.full(5000, i), range(10))} == set(range(10))


def test_the_default_context_has_pools(make: Callable[..., Any]) -> None:
    assert make(None, 2).map(abs, [-1, -2]) == [1, 2]


def test_results_outlive_the_workers_that_made_them(make: Callable[..., Any]) -> None:
    pool = make("forkserver", 2, maxtasksperchild=1)
    results = [pool.apply_async(np.full, (3000, i)) for i in range(6)]
    pool.close()
    pool.join()
    assert all(worker.exitcode == 0 for worker in pool._pool)
    assert [int(result.get(LONG)[2999]) for result in results] == list(range(6))


def die_with(array: np.ndarray) -> np.ndarray:
    if array[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return array


def test_nothing_is_left_of_tasks_results_and_killed_workers(make: Callable[..., Any]) -> None:
    pool = make("forkserver", 2)
    gc.collect()
    before = ipc.stats()["blocks"]
    for turn in range(5):
        results = [pool.apply_async(die_with, (np.full(4000, i if i != 3 else -1),)) for i in range(8)]
        with pytest.raises(WorkerDied):
            results[3].get(LONG)
        assert [int(result.get(LONG)[0]) for i, result in enumerate(results) if i != 3] == [0, 1, 2, 4, 5, 6, 7], turn
    never_asked_for = pool.map_async(np.zeros, [5000] * 8)
    never_asked_for.wait(LONG)
    del results, never_asked_for
    pool.terminate()
    pool.join()
    assert wait_for_blocks(before) == before
    assert ipc.check() == []


def wait_while_it_grows(made: np.ndarray) -> int:
    """What `made` stays at: a reader that has no limit goes on to the end meanwhile."""
    last, still = -1, 0
    while still < 200:
        last, still = (int(made[0]), 0) if made[0] != last else (last, still + 1)
        time.sleep(0.001)
    return last


def test_an_iterable_of_arrays_is_read_64_mib_ahead_of_the_workers(make: Callable[..., Any]) -> None:
    made = mp.SharedArray(np.zeros(1, np.int64))

    def arrays() -> Iterator[np.ndarray]:
        for i in range(200):
            made[0] += 1
            yield np.full(1 << 20, i % 100, np.uint8)

    def total(array: np.ndarray) -> tuple[int, int]:
        first = int(array[0])
        return first, wait_while_it_grows(made) if made[0] < 200 and first == 0 else 0

    pool = make("forkserver", 1)
    results = list(pool.imap(total, arrays()))
    assert [first for first, _ in results] == [i % 100 for i in range(200)]
    held = 4  # in the worker's hands and in the reader's
    assert 60 <= results[0][1] <= 64 + held


@pytest.mark.parametrize("method", METHODS)
def test_tensors_go_both_ways(method: str, make: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    from shoal.ipc import tensors

    pool = make(method, 2)
    buffers = [torch.zeros(2, 2) for _ in range(4)]
    results = pool.map(lambda tensor: tensor.fill_(4).add(1), buffers, 1)
    assert [buffer.tolist() for buffer in buffers] == [[[4, 4], [4, 4]]] * 4
    assert [result.tolist() for result in results] == [[[5, 5], [5, 5]]] * 4
    assert all(tensors.is_shared(result) for result in results)
    with pytest.raises(Exception, match="requires_grad"):
        pool.apply(lambda: torch.ones(1, requires_grad=True) * 2)
    layer = torch.nn.Linear(3, 3)
    pool.map(lambda i: layer.weight.data.fill_(i), [1, 1])
    assert layer.weight.tolist() == [[1, 1, 1]] * 3
