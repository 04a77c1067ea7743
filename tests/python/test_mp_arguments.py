"""Arguments of shoal.multiprocessing that no other test is about."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from queue import Full
from typing import Any

import pytest

import shoal.multiprocessing as mp
from shoal.multiprocessing.pool import Pool
from shoal.multiprocessing.synchronize import Barrier

LONG = 60.0
"""Seconds that no passing test comes near."""


# --- processes


def put(queue: Any, *args: Any, **kwargs: Any) -> None:
    queue.put((args, kwargs))


def test_a_group_is_refused() -> None:
    with pytest.raises(AssertionError, match="group argument must be None"):
        mp.Process(group="workers")  # type: ignore[arg-type]


def test_keyword_arguments_reach_the_target() -> None:
    queue = mp.SimpleQueue()
    process = mp.Process(target=put, args=(queue, 1), kwargs={"word": "two"})
    process.start()
    assert queue.get() == ((1,), {"word": "two"})
    process.join()


def tell_daemon(index: int, queue: Any) -> None:
    queue.put((index, mp.current_process().daemon))


@pytest.mark.parametrize("start", [mp.spawn, mp.start_processes])
@pytest.mark.parametrize("daemon", [False, True])
def test_processes_may_be_daemons_and_be_joined_later(start: Callable[..., Any], daemon: bool) -> None:
    queue = mp.SimpleQueue()
    group = start(tell_daemon, args=(queue,), nprocs=2, join=False, daemon=daemon)
    assert sorted([queue.get(), queue.get()]) == [(0, daemon), (1, daemon)]
    while not group.join():
        pass
    assert [process.exitcode for process in group.processes] == [0, 0]


def wait_for(index: int, gate: Any) -> None:
    assert gate.wait(LONG)


def test_a_group_is_waited_for_as_long_as_is_said() -> None:
    gate = mp.Event()
    group = mp.start_processes(wait_for, args=(gate,), nprocs=2, join=False)
    assert group.join(timeout=0) is False
    gate.set()
    while not group.join(timeout=LONG):
        pass


def fail_or_follow(index: int, pid: Any, known: Any, watched: Any) -> None:
    """The first raises; the second ends by itself when it sees that."""
    if index == 0:
        pid.value = os.getpid()
        known.set()
        assert watched.wait(LONG)
        raise LookupError("the first")
    assert known.wait(LONG)
    first = os.pidfd_open(pid.value)
    watched.set()
    assert select.select([first], [], [], LONG)[0]


def fail_or_sleep(index: int) -> None:
    if index == 0:
        raise LookupError("the first")
    time.sleep(1000)


def test_the_others_have_their_grace_to_end_by_themselves() -> None:
    followed = mp.start_processes(
        fail_or_follow, args=(mp.Value("i", 0), mp.Event(), mp.Event()), nprocs=2, join=False, start_method="forkserver"
    )
    with pytest.raises(mp.ProcessRaisedException, match="the first"):
        followed.join(grace_period=LONG)
    assert [process.exitcode for process in followed.processes] == [1, 0]
    ended = mp.start_processes(fail_or_sleep, nprocs=2, join=False, start_method="forkserver")
    with pytest.raises(mp.ProcessRaisedException, match="the first"):
        ended.join(grace_period=0.01)
    assert [process.exitcode for process in ended.processes] == [1, -signal.SIGTERM]


def test_a_relay_is_drained_for_as_long_as_is_said() -> None:
    gate = mp.Event()
    with mp.LogRelay() as relay:
        process = relay.attach(mp.Process(target=gate.wait))
        process.start()
        assert not relay.drain(process.pid, timeout=0)
        gate.set()
        process.join()
        assert relay.drain(process.pid, LONG)


# --- pools

_word = ""


def remember(word: str) -> None:
    global _word
    _word = word


def look(_: Any) -> tuple[str, str | None, int]:
    return _word, os.getenv("OMP_NUM_THREADS"), os.getpid()


def test_a_pool_of_a_context_has_its_arguments() -> None:
    with mp.Pool(1, initializer=remember, initargs=("ready",), maxtasksperchild=1, threads=3) as pool:
        seen = pool.map(look, range(3), chunksize=1)
    pool.join()
    assert {told[:2] for told in seen} == {("ready", "3")} and len({pid for *_, pid in seen}) == 3
    with mp.Pool(processes=2) as pool:
        assert len(pool._pool) == 2
    pool.join()


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_workers_of_a_pool_are_of_its_context_with_its_threads(method: str) -> None:
    with Pool(1, context=mp.get_context(method), threads=3) as pool:
        assert (pool.apply(os.getppid) == os.getpid()) == (method == "spawn")
        assert pool.apply(os.getenv, ("OMP_NUM_THREADS",)) == "3"
    pool.join()


def pid_of(*_: Any) -> int:
    return os.getpid()


def test_a_chunk_is_one_task() -> None:
    items = range(4)
    with Pool(1, maxtasksperchild=1) as pool:
        for pids in (
            pool.map_async(pid_of, items, chunksize=2).get(LONG),
            pool.starmap(pid_of, zip(items, items, strict=True), chunksize=2),
            pool.starmap_async(pid_of, zip(items, items, strict=True), chunksize=2).get(LONG),
            list(pool.imap(pid_of, items, chunksize=2)),
            list(pool.imap_unordered(pid_of, items, chunksize=2)),
        ):
            assert pids[0] == pids[1] != pids[2] == pids[3]
    pool.join()


def test_results_are_asked_for_in_every_way() -> None:
    gate = mp.Event()
    got: list[Any] = []
    with Pool(1) as pool:
        assert pool.apply_async(dict, kwds={"a": 1}).get(LONG) == {"a": 1}
        for words in ([("1",)], [("a",)]):
            pool.starmap_async(int, words, callback=got.append, error_callback=got.append).wait(LONG)
        assert got[0] == [1] and isinstance(got[1], ValueError)
        waiting = pool.apply_async(wait_for, (0, gate))
        waiting.wait(timeout=0.01)
        assert not waiting.ready()
        gate.set()
        waiting.wait(LONG)
        assert waiting.ready()
    pool.join()


# --- what contexts make


def test_queues_of_a_context_are_as_large_as_is_said() -> None:
    for make in (mp.Queue, mp.JoinableQueue):
        queue = make(maxsize=1)
        queue.put(0)
        with pytest.raises(Full):
            queue.put_nowait(1)


def test_a_pipe_of_a_context_has_the_directions_that_were_asked_for() -> None:
    reader, writer = mp.Pipe(duplex=False)
    assert not reader.writable and not writer.readable
    both, _ = mp.Pipe()
    assert both.writable and both.readable


def test_locks_and_their_kin_of_a_context_are_as_asked_for() -> None:
    assert [make(value=2).get_value() for make in (mp.Semaphore, mp.BoundedSemaphore)] == [2, 2]
    lock = mp.Lock()
    with mp.Condition(lock=lock):
        assert lock.locked()
    acted: list[int] = []
    assert mp.Barrier(parties=1, action=lambda: acted.append(1)).wait() == 0
    assert acted == [1]
    with pytest.raises(threading.BrokenBarrierError):
        mp.Barrier(2, timeout=0.001).wait()
    with pytest.raises(threading.BrokenBarrierError):
        Barrier(2).wait(timeout=0.001)


def test_what_a_dead_owner_leads_to_is_one_of_three() -> None:
    for make in (mp.Lock, mp.RLock, mp.Semaphore, mp.BoundedSemaphore):
        assert make(on_owner_died="raise").on_owner_died != make().on_owner_died
        with pytest.raises(ValueError, match="on_owner_died='hang'"):
            make(on_owner_died="hang")


def test_values_and_arrays_of_a_context_are_as_asked_for() -> None:
    assert mp.RawValue("i", 7).value == 7 and mp.RawArray("h", [1, 2])[:] == [1, 2]
    value, array = mp.Value("i", 5), mp.Array("d", [1.5, 2])
    with value.get_lock(), array.get_lock():
        assert value.value == 5 and array[:] == [1.5, 2.0]
    assert not hasattr(mp.Value("i", 5, lock=False), "get_lock")
    assert not hasattr(mp.Array("d", 2, lock=False), "get_lock")
