"""shoal.multiprocessing.Pool: CPython's interface, and what it does when workers die, raise, or send what cannot be sent."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shoal.errors import RemoteError, WorkerDied
from shoal.multiprocessing import worker_manager
from shoal.multiprocessing.pool import BrokenPool, MaybeEncodingError, Pool, RemoteTraceback

LONG = 60.0

pytestmark = pytest.mark.own_process  # workers are forked


def context() -> Any:
    return multiprocessing.get_context("fork")


@pytest.fixture
def make() -> Iterator[Callable[..., Pool]]:
    """Makes pools, which are gone when the test is."""
    pools: list[Pool] = []

    def make_one(*args: Any, **options: Any) -> Pool:
        pools.append(Pool(*args, **{"context": context(), **options}))
        return pools[-1]

    yield make_one
    for pool in pools:
        pool.terminate()
        pool.join()


@pytest.fixture
def pool(make: Callable[..., Pool]) -> Pool:
    return make(2)


def hold(item: Any) -> None:
    time.sleep(LONG)


def square(x: int) -> int:
    return x * x


def add(x: int, y: int = 0) -> int:
    return x + y


def die_at(bad: int, x: int) -> int:
    if x == bad:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


# --- results


def test_map_and_its_kin_return_what_a_loop_returns(pool: Pool) -> None:
    assert pool.map(square, range(1000)) == [x * x for x in range(1000)]
    assert pool.map(square, range(10), chunksize=3) == [x * x for x in range(10)]
    assert pool.map(square, iter(range(7))) == [x * x for x in range(7)]
    assert pool.map(square, []) == []
    assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
    assert pool.map_async(square, range(5)).get(LONG) == [0, 1, 4, 9, 16]
    assert pool.starmap_async(add, [(1, 2)], chunksize=1).get(LONG) == [3]
    assert pool.apply(add, (1,), {"y": 2}) == 3
    assert pool.apply_async(add, (5,)).get(LONG) == 5


@pytest.mark.parametrize("chunksize", [1, 3, 100])
def test_imap_is_in_order_and_imap_unordered_is_complete(pool: Pool, chunksize: int) -> None:
    expected = [x * x for x in range(100)]
    assert list(pool.imap(square, range(100), chunksize)) == expected
    assert list(pool.imap(square, iter(range(100)), chunksize)) == expected
    assert sorted(pool.imap_unordered(square, iter(range(100)), chunksize)) == expected


def test_lambdas_closures_and_local_classes_are_tasks_and_results(pool: Pool) -> None:
    base = 10
    assert pool.map(lambda x: x + base, range(3)) == [10, 11, 12]
    assert pool.apply(lambda: lambda: base)() == 10


def test_messages_far_longer_than_the_rings_arrive(pool: Pool) -> None:
    sent = np.arange(3_000_000, dtype=np.int64)
    assert np.array_equal(pool.apply(np.negative, (sent,)), -sent)
    assert [len(text) for text in pool.map(lambda n: "x" * n, [0, 1, 10**6, 5 * 10**6])] == [0, 1, 10**6, 5 * 10**6]


def test_a_result_says_whether_it_is_ready_and_how_it_went(pool: Pool, tmp_path: Any) -> None:
    gate = tmp_path / "open"
    waiting = pool.apply_async(wait_for_file, (str(gate),))
    assert not waiting.ready()
    with pytest.raises(ValueError, match="not ready"):
        waiting.successful()
    with pytest.raises(multiprocessing.TimeoutError):
        waiting.get(timeout=0.01)
    gate.touch()
    waiting.wait(LONG)
    assert waiting.ready()
    assert waiting.successful()
    assert waiting.get() == waiting.get() == "open"
    failed = pool.apply_async(divmod, (1, 0))
    failed.wait(LONG)
    assert not failed.successful()


def wait_for_file(path: str) -> str:
    while not os.path.exists(path):
        time.sleep(0.001)
    return "open"


def test_next_of_imap_has_a_timeout(pool: Pool, tmp_path: Any) -> None:
    gate = tmp_path / "open"
    results = pool.imap(wait_for_file, [str(gate)])
    with pytest.raises(multiprocessing.TimeoutError):
        results.next(timeout=0.01)
    gate.touch()
    assert results.next(timeout=LONG) == "open"
    with pytest.raises(StopIteration):
        results.next()


def test_a_task_behind_a_long_one_is_done_by_the_worker_that_is_free(pool: Pool, tmp_path: Any) -> None:
    gate = tmp_path / "open"
    long = pool.apply_async(wait_for_file, (str(gate),))
    # Each of these was perhaps given to the busy worker beforehand; the last opens the gate.
    assert pool.map(square, range(20), chunksize=1) == [x * x for x in range(20)]
    pool.apply(gate.touch)
    assert long.get(LONG) == "open"


def test_callbacks_are_called_before_the_result_is_ready(pool: Pool) -> None:
    got: list[Any] = []
    pool.map_async(int, ["1"], callback=got.append, error_callback=got.append).wait(LONG)
    assert got == [[1]]
    pool.map_async(int, ["a"], callback=got.append, error_callback=got.append).wait(LONG)
    assert isinstance(got[1], ValueError)
    pool.apply_async(square, (3,), callback=got.append).wait(LONG)
    assert got[2] == 9


def test_a_callback_that_raises_harms_no_other(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    result = pool.apply_async(square, (3,), callback=lambda _: 1 / 0)
    assert result.get(LONG) == 9
    got: list[int] = []
    pool.apply_async(square, (2,), callback=got.append).wait(LONG)
    assert got == [4]
    assert told[0].exc_type is ZeroDivisionError


def test_objects_of_finished_tasks_are_let_go(pool: Pool) -> None:
    class Thing:
        pass

    things = [Thing() for _ in range(10)]
    references = [weakref.ref(thing) for thing in things]
    pool.map(id, things)
    del things
    gc.collect()
    assert [reference() for reference in references] == [None] * 10


# --- failures


def raise_it(x: int) -> None:
    raise RuntimeError(x)  # a remark


def test_an_exception_has_the_workers_traceback_as_its_cause(pool: Pool) -> None:
    with pytest.raises(RuntimeError) as raised:
        pool.apply(raise_it, (123,))
    assert raised.value.args == (123,)
    assert type(raised.value.__cause__) is RemoteTraceback
    assert "raise RuntimeError(x)  # a remark" in raised.value.__cause__.tb
    with pytest.raises(RuntimeError):
        pool.map(raise_it, range(10))


class Awkward(Exception):
    """Cannot be unpickled: pickle calls it with `args` alone."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raise_awkward(_: int) -> None:
    raise Awkward(1, 2)


def test_an_exception_that_does_not_survive_pickling_arrives(pool: Pool) -> None:
    with pytest.raises((Awkward, RemoteError), match="1 and 2"):
        pool.map(raise_awkward, [1])
    assert pool.apply(square, (2,)) == 4


def test_a_result_that_cannot_be_pickled_is_an_error_that_shows_it(pool: Pool) -> None:
    errors: list[BaseException] = []
    for _ in range(5):
        with pytest.raises(MaybeEncodingError, match="lock"):
            pool.apply_async(threading.Lock, error_callback=errors.append).get(LONG)
    assert len(errors) == 5


class CannotBeShown:
    def __reduce__(self) -> Any:
        raise ValueError("no pickle")

    def __repr__(self) -> str:
        raise ValueError("no text")


def test_a_result_that_can_neither_be_pickled_nor_shown_is_an_error(pool: Pool) -> None:
    with pytest.raises(MaybeEncodingError, match=r"<.*CannotBeShown object at .*no pickle"):
        pool.apply(CannotBeShown)
    assert pool.apply(square, (2,)) == 4


class BreaksOnTheWayBack:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_result_that_cannot_be_unpickled_raises_where_it_is_asked_for(pool: Pool) -> None:
    bad = pool.apply_async(BreaksOnTheWayBack)
    with pytest.raises(ValueError, match="no number"):
        bad.get(LONG)
    assert pool.apply(square, (2,)) == 4


def test_arguments_that_cannot_be_pickled_are_named_by_their_path(pool: Pool) -> None:
    with pytest.raises(TypeError, match=r"args\[0\]\[0\]\['key'\].*lock"):
        pool.apply_async(square, ({"key": threading.Lock()},))
    with pytest.raises(TypeError, match="lock"):
        pool.map(square, [threading.Lock()])
    assert pool.map(square, [1]) == [1]


def test_what_an_iterable_raises_comes_where_it_raised(pool: Pool) -> None:
    def numbers() -> Iterator[int]:
        yield from range(3)
        raise LookupError("enough")

    results = pool.imap(square, numbers())
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(LookupError, match="enough"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)
    with pytest.raises(LookupError):
        list(pool.imap_unordered(square, numbers(), 2))
    with pytest.raises(LookupError):
        pool.map(square, numbers())


# --- deaths


def test_a_killed_worker_fails_its_task_alone_and_is_replaced(pool: Pool) -> None:
    before = {worker.pid for worker in pool._pool}
    results = [pool.apply_async(die_at, (7, i)) for i in range(30)]
    for i, result in enumerate(results):
        if i != 7:
            assert result.get(LONG) == i
    with pytest.raises(WorkerDied, match=r"PoolWorker.*SIGKILL") as died:
        results[7].get(LONG)
    assert died.value.exitcode == -signal.SIGKILL
    assert "dmesg" in str(died.value) and "on_fault" not in str(died.value)
    assert died.value.pid in before
    assert pool.map(square, range(10)) == [x * x for x in range(10)]


def test_a_worker_that_exits_fails_its_task_with_the_exit_code(pool: Pool) -> None:
    with pytest.raises(WorkerDied, match="exited with code 3") as died:
        pool.apply(sys.exit, (3,))
    assert (died.value.exitcode, died.value.kind) == (3, "exit")


def test_a_map_whose_worker_is_killed_raises_and_the_pool_goes_on(pool: Pool) -> None:
    for _ in range(3):
        with pytest.raises(WorkerDied):
            pool.map(functools.partial(die_at, 50), range(100), chunksize=1)
    assert pool.map(square, range(100)) == [x * x for x in range(100)]


def test_idle_workers_that_are_killed_cost_no_task(pool: Pool) -> None:
    assert pool.map(square, range(4)) == [0, 1, 4, 9]
    for worker in list(pool._pool):
        os.kill(worker.pid, signal.SIGKILL)
    assert pool.map(square, range(100)) == [x * x for x in range(100)]


def fail_to_begin(why: str) -> None:
    raise LookupError(why)


def test_an_initializer_that_raises_is_an_error_of_every_call(make: Callable[..., Pool]) -> None:
    pool = make(2, initializer=fail_to_begin, initargs=("no data",))
    for _ in range(2):
        with pytest.raises(BrokenPool, match="initializer.*LookupError.*no data") as raised:
            pool.map(square, range(10))
        assert isinstance(raised.value.__cause__, LookupError)
    with pytest.raises(BrokenPool):
        pool.apply_async(square, (1,)).get(LONG)


def test_callbacks_are_called_of_a_pool_that_has_stopped(make: Callable[..., Pool]) -> None:
    pool = make(2, initializer=fail_to_begin, initargs=("no data",))
    with pytest.raises(BrokenPool):
        pool.map(square, range(10))
    pool._manager._keeper.join(LONG)
    told: list[BaseException] = []
    for result in (
        pool.apply_async(square, (1,), error_callback=told.append),
        pool.map_async(square, range(3), error_callback=told.append),
        pool.map_async(len, [b"x" * 2**24] * 9, chunksize=1, error_callback=told.append),  # a thread feeds them
    ):
        with pytest.raises(BrokenPool):
            result.get(LONG)
    assert len(told) == 3 and {type(error) for error in told} == {BrokenPool}


def test_a_call_that_is_still_being_fed_ends_with_the_pool(make: Callable[..., Pool]) -> None:
    pool = make(1)
    told: list[BaseException] = []
    items = [b"x" * 2**24] * 9  # more than a pool holds at once
    result = pool.map_async(hold, items, chunksize=1, error_callback=told.append)
    pool.terminate()
    with pytest.raises(BrokenPool):
        result.get(LONG)
    assert [type(error) for error in told] == [BrokenPool]


def test_workers_that_end_before_they_begin_are_not_started_without_end(make: Callable[..., Pool]) -> None:
    pool = make(2, initializer=os._exit, initargs=(9,))
    with pytest.raises(BrokenPool, match="exited with code 9 before it could begin"):
        pool.map(square, range(10))


# --- workers


_state: dict[str, Any] = {}


def set_state(**values: Any) -> None:
    _state.update(values)


def get_state(name: str) -> Any:
    return _state.get(name)


def test_the_initializer_runs_in_every_worker_before_its_tasks(make: Callable[..., Pool]) -> None:
    pool = make(2, initializer=functools.partial(set_state, word="ready"))
    assert set(pool.map(get_state, ["word"] * 50)) == {"ready"}


def test_workers_are_replaced_after_maxtasksperchild(make: Callable[..., Pool]) -> None:
    pool = make(2, maxtasksperchild=3)
    pids = pool.map(lambda _: os.getpid(), range(20), chunksize=1)
    assert all(pids.count(pid) <= 3 for pid in pids)
    pool.close()
    pool.join()
    assert [worker.exitcode for worker in pool._pool] == [0, 0]


@pytest.mark.parametrize("arguments", [{"processes": 0}, {"processes": -1}, {"maxtasksperchild": 0}, {"affinity": "x"}])
def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="."):
        Pool(**{"processes": 1, "context": context(), **arguments})
    with pytest.raises(TypeError, match="callable"):
        Pool(1, initializer=3, context=context())  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_workers(make: Callable[..., Pool]) -> None:
    def draws(seed: int | None) -> list[Any]:
        pool = make(2, seed=seed)
        found = set()
        while len({slot for slot, *_ in found}) < 2:
            found |= set(pool.map(draw, range(8), chunksize=1))
        return sorted(found)

    first = draws(7)
    assert len(first) == 2
    assert first[0][1:] != first[1][1:]
    assert draws(7) == first
    assert draws(8) != first
    assert draws(None) != first


def draw(_: int) -> Any:
    """The worker's place, and the first numbers that it drew."""
    if "drawn" not in _state:
        number = int(multiprocessing.current_process()._identity[-1])  # type: ignore[attr-defined]
        _state["drawn"] = (number % 2, random.random(), float(np.random.random()))
    return _state["drawn"]


def test_affinity_confines_workers(make: Callable[..., Pool]) -> None:
    cpu = min(os.sched_getaffinity(0))
    pool = make(2, affinity=[{cpu}])
    assert pool.map(os.sched_getaffinity, [0] * 10, chunksize=1) == [{cpu}] * 10


# --- its end


def test_terminate_ends_a_long_map_at_once(pool: Pool) -> None:
    result = pool.map_async(time.sleep, [1000.0] * 1000)
    pool.terminate()
    pool.join()
    with pytest.raises(BrokenPool, match="terminated"):
        result.get(LONG)
    assert all(worker.exitcode is not None for worker in pool._pool)
    with pytest.raises(ValueError, match="not running"):
        pool.map(square, [1])


def test_close_lets_everything_be_done(pool: Pool) -> None:
    mapped = pool.map_async(square, range(1000))
    iterated = pool.imap_unordered(square, iter(range(1000)))
    pool.close()
    with pytest.raises(ValueError, match="not running"):
        pool.apply(square, (1,))
    pool.join()
    assert mapped.get(LONG) == [x * x for x in range(1000)]
    assert sorted(iterated) == [x * x for x in range(1000)]


def test_workers_ignoring_sigterm_are_killed(
    make: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(worker_manager, "GRACE", 0.1)
    pool = make(1, initializer=signal.signal, initargs=(signal.SIGTERM, signal.SIG_IGN))
    begun = tmp_path / "begun"
    pool.apply_async(touch_and_sleep, (str(begun),))
    wait_for_file(str(begun))
    pool.terminate()
    assert pool._pool[0].exitcode == -signal.SIGKILL


def touch_and_sleep(path: str) -> None:
    with open(path, "w"):
        pass
    time.sleep(1000.0)


def test_with_terminates_and_join_needs_an_end(pool: Pool) -> None:
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    with pool:
        assert pool.map(square, [1, 2]) == [1, 4]
    with pytest.raises(ValueError, match="not running"), pool:
        pass
    assert "state=TERMINATE pool_size=2" in repr(pool)


def test_a_pool_cannot_be_pickled(pool: Pool) -> None:
    with pytest.raises(NotImplementedError, match="cannot be passed"):
        pickle.dumps(pool)


def test_a_forgotten_pool_warns_and_ends() -> None:
    pool = Pool(1, context=context())
    worker = pool._pool[0]
    assert pool.apply(square, (2,)) == 4
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool"):
        del pool
        gc.collect()
    worker.join(LONG)
    assert worker.exitcode is not None


def test_a_pending_result_keeps_its_pool() -> None:
    result = Pool(1, context=context()).apply_async(square, (3,))
    gc.collect()
    with pytest.warns(ResourceWarning):
        assert result.get(LONG) == 9
        gc.collect()


def test_processes_that_cannot_be_started_leave_none_behind() -> None:
    made = []

    class Process(type(context()).Process):  # type: ignore[misc]
        def start(self) -> None:
            if len(made) == 2:
                raise OSError("no more")
            made.append(self)
            super().start()

    failing = context()
    pool_class = type("FailingPool", (Pool,), {"Process": staticmethod(lambda _, **options: Process(**options))})
    with pytest.raises(OSError, match="no more"):
        pool_class(4, context=failing)
    assert [worker.exitcode for worker in made] == [-signal.SIGTERM] * 2


def test_a_forked_copy_of_a_pool_is_inert(pool: Pool) -> None:
    child = context().Process(target=use_copy, args=(pool,))
    child.start()
    child.join(LONG)
    assert child.exitcode == 0
    assert pool.map(square, [3]) == [9]


def use_copy(pool: Pool) -> None:
    with pytest.raises(ValueError, match="another process's"):
        pool.apply_async(square, (1,))
    pool.terminate()


def test_a_program_that_forgets_its_pool_exits(tmp_path: Any) -> None:
    import subprocess

    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing\nfrom shoal.multiprocessing.pool import Pool\n"
        "pool = Pool(2, context=multiprocessing.get_context('fork'))\n"
        "pending = pool.imap(abs, iter(int, 1))\nprint(pool.apply(abs, (-3,)))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=LONG)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
