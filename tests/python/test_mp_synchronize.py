"""shoal.multiprocessing.synchronize: CPython's locks and their kin, and what they do when a process is killed."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shoal.multiprocessing as mp
from shoal.errors import OwnerDied
from shoal.multiprocessing import reduction, sharedctypes
from shoal.multiprocessing.synchronize import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

LONG = 30.0  # seconds that no passing test comes near


class Child:
    """A fork that runs `body()`; its exit code is what that returns, or 99."""

    def __init__(self, body: Callable[[], int | None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                code = body() or 0
            finally:
                os._exit(code)
        self._joined = False

    def join(self) -> int:
        self._joined = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        if not self._joined:
            os.kill(self.pid, signal.SIGKILL)
            self.join()


@pytest.fixture
def fork() -> Iterator[Callable[[Callable[[], int | None]], Child]]:
    children: list[Child] = []

    def start(body: Callable[[], int | None]) -> Child:
        children.append(Child(body))
        return children[-1]

    yield start
    for child in children:
        child.kill()


@pytest.fixture
def holder(fork: Any) -> Callable[[Callable[[], Any]], Child]:
    """A child that has done something, and then is there until it is killed."""

    def start(body: Callable[[], Any]) -> Child:
        ready = Event()

        def hold() -> None:
            body()
            ready.set()
            signal.pause()

        child: Child = fork(hold)
        assert ready.wait(LONG)
        return child

    return start


def copy(obj: Any) -> Any:
    """As another process would get it."""
    data, blocks = reduction.dumps(obj)
    again = reduction.loads(data)
    assert blocks
    return again


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# --- as CPython's ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_lock_is_had_and_given_back(kind: type) -> None:
    lock = kind()
    assert lock.acquire() is True
    if kind is Lock:
        assert lock.acquire(False) is False
        assert lock.acquire(True, 0.001) is False
        assert lock.acquire(timeout=-1) is False
    assert lock.locked()
    assert lock.release() is None
    with lock:
        pass
    assert not lock.locked()


def test_a_lock_that_is_free_cannot_be_released() -> None:
    with pytest.raises(ValueError, match="semaphore or lock released too many times"):
        Lock().release()
    with pytest.raises(AssertionError, match="not owned by thread"):
        RLock().release()


def test_a_recursive_lock_is_its_threads() -> None:
    lock = RLock()
    assert lock.acquire() and lock.acquire()
    failed = []

    def other() -> None:
        failed.append(not lock.acquire(False))
        with contextlib.suppress(AssertionError):
            lock.release()
            failed.append(False)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert failed == [True]
    lock.release()
    lock.release()
    with pytest.raises(AssertionError):
        lock.release()


@pytest.mark.own_process
def test_any_thread_and_process_releases_a_lock(fork: Any) -> None:
    lock = Lock()
    lock.acquire()
    child = fork(lambda: lock.release())
    assert lock.acquire(timeout=LONG)
    assert child.join() == 0


@pytest.mark.own_process
def test_reprs_say_who_has_it(fork: Any) -> None:
    lock, rlock = Lock(), RLock()
    assert repr(lock) == "<Lock(owner=None)>"
    assert repr(rlock) == "<RLock(None, 0)>"
    with lock, rlock, rlock:
        assert repr(lock) == "<Lock(owner=MainProcess)>"
        assert repr(rlock) == "<RLock(MainProcess, 2)>"
        texts: list[str] = []
        thread = threading.Thread(target=lambda: texts.extend([repr(lock), repr(rlock)]))
        thread.start()
        thread.join()
        assert texts == ["<Lock(owner=SomeOtherThread)>", "<RLock(SomeOtherThread, nonzero)>"]
        child = fork(
            lambda: (
                [repr(lock), repr(rlock)] != ["<Lock(owner=SomeOtherProcess)>", "<RLock(SomeOtherProcess, nonzero)>"]
            )
        )
        assert child.join() == 0
    assert repr(Semaphore(3)) == "<Semaphore(value=3)>"
    assert repr(BoundedSemaphore(3)) == "<BoundedSemaphore(value=3, maxvalue=3)>"
    assert re.fullmatch(r"<Event at 0x[0-9a-f]+ unset>", repr(Event()))
    assert repr(Condition(Lock())) == "<Condition(<Lock(owner=None)>, 0)>"
    assert "waiters=0/2" in repr(Barrier(2))


def test_permits_are_counted() -> None:
    permits = Semaphore(2)
    assert permits.get_value() == 2
    assert permits.acquire() and permits.acquire()
    assert permits.acquire(False) is False
    assert permits.acquire(timeout=0.001) is False
    assert permits.get_value() == 0
    permits.release()
    permits.release()
    permits.release()
    assert permits.get_value() == 3
    bounded = BoundedSemaphore(1)
    with pytest.raises(ValueError, match="released too many times"):
        bounded.release()
    with pytest.raises(ValueError):
        Semaphore(-1)


def test_a_condition_wakes_as_many_as_it_is_told() -> None:
    condition = Condition()
    woken: list[int] = []

    def wait(index: int) -> None:
        with condition:
            assert condition.wait(LONG)
            woken.append(index)

    threads = [threading.Thread(target=wait, args=(index,)) for index in range(5)]
    for count, thread in enumerate(threads):
        thread.start()
        wait_until(lambda count=count: condition._condition.waiting() == count + 1)  # type: ignore[misc]
    with condition:
        condition.notify()
    wait_until(lambda: len(woken) == 1)
    with condition:
        condition.notify(2)
    wait_until(lambda: len(woken) == 3)
    assert sorted(woken) == [0, 1, 2]
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert sorted(woken) == [0, 1, 2, 3, 4]
    with condition:
        assert condition.wait(0.001) is False
        assert condition.wait_for(lambda: 7) == 7
        assert condition.wait_for(lambda: 0, timeout=0.001) == 0


def test_a_condition_needs_its_lock() -> None:
    condition = Condition(Lock())
    with pytest.raises(AssertionError, match=r"must acquire\(\) condition before using wait"):
        condition.wait()
    with pytest.raises(AssertionError, match="lock is not owned"):
        condition.notify()


def test_a_timeout_that_is_no_number_changes_nothing() -> None:
    condition, barrier = Condition(), Barrier(2)
    with condition:
        with pytest.raises(ValueError, match="not nan"):
            condition.wait(math.nan)
        assert condition._sleeping_count.get_value() == 0
    with pytest.raises(ValueError, match="not nan"):
        barrier.wait(math.nan)
    assert barrier.n_waiting == 0 and not barrier.broken


@pytest.mark.own_process
def test_an_event_is_seen_by_threads_and_processes(fork: Any) -> None:
    event = Event()
    assert not event.is_set()
    assert event.wait(0.0) is False
    assert event.wait(-1) is False
    child = fork(lambda: not event.wait(LONG))
    event.set()
    assert event.wait() is True
    assert child.join() == 0
    event.clear()
    assert event.wait(0.001) is False


@pytest.mark.own_process
def test_a_barrier_lets_all_go_on_together(fork: Any) -> None:
    acted = Semaphore(0)
    barrier = Barrier(3, action=acted.release)
    rounds = 20

    def meet() -> int:
        return 0 if all(0 <= barrier.wait(LONG) < 3 for _ in range(rounds)) else 1

    children = [fork(meet), fork(meet)]
    assert meet() == 0
    assert [child.join() for child in children] == [0, 0]
    assert acted.get_value() == rounds
    assert barrier.n_waiting == 0 and not barrier.broken and barrier.parties == 3


def test_a_barrier_breaks_and_is_whole_again() -> None:
    barrier = Barrier(2, timeout=0.001)
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait()
    assert barrier.broken
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait()
    barrier.reset()
    assert not barrier.broken
    barrier.abort()
    assert barrier.broken

    def fail() -> None:
        raise ZeroDivisionError

    alone = Barrier(1, action=fail)
    with pytest.raises(ZeroDivisionError):
        alone.wait()
    assert alone.broken


# --- copies ---------------------------------------------------------------------------------------------------------------


def test_copies_are_the_same_things() -> None:
    lock, event, permits, barrier = Lock(), Event(), BoundedSemaphore(2), Barrier(2, timeout=5)
    condition = Condition(lock)
    again = copy([lock, event, permits, barrier, condition])
    lock.acquire()
    assert again[0].locked() and again[4]._lock is again[0]
    assert type(again[2]) is BoundedSemaphore
    again[0].release()
    again[1].set()
    assert event.is_set()
    again[3].abort()
    assert barrier.broken and again[3]._timeout == 5
    with pytest.raises(RuntimeError, match="through inheritance"):
        pickle.dumps(lock)


@pytest.mark.own_process
def test_values_and_arrays_are_shared(fork: Any) -> None:
    value, array, raw = (
        sharedctypes.Value("i", 5),
        sharedctypes.Array("d", 4),
        sharedctypes.RawArray("b", 3),
    )

    def write() -> None:
        with value.get_lock():
            value.value += 1
        array[2] = 2.5
        raw[:] = [1, 2, 3]

    assert fork(write).join() == 0
    assert value.value == 6 and array[:] == [0, 0, 2.5, 0] and raw[:] == [1, 2, 3]
    other, view = copy([value, array])
    other.value = 9
    view[0] = 1
    assert value.value == 9 and array[0] == 1


# --- deaths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.own_process
@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_killed_owners_lock_is_recovered(kind: type, holder: Any) -> None:
    lock = kind()
    child = holder(lock.acquire)
    assert lock.acquire(False) is False
    killer = threading.Timer(0.01, child.kill)
    killer.start()
    with pytest.warns(RuntimeWarning, match=f"{child.pid}.* died while it held"), lock:
        assert lock.recovered
    killer.join()
    with lock:
        assert not lock.recovered


@pytest.mark.own_process
@pytest.mark.parametrize("kind", [Lock, RLock, Semaphore, BoundedSemaphore])
def test_owner_died_is_raised_where_asked_for(kind: type, holder: Any) -> None:
    lock = kind(on_owner_died="raise")
    child = holder(lock.acquire)
    child.kill()
    with pytest.raises(OwnerDied) as caught:
        lock.acquire()
    assert caught.value.pid == child.pid
    with lock:
        pass
    with pytest.raises(ValueError, match="on_owner_died"):
        kind(on_owner_died="hang")


@pytest.mark.own_process
def test_a_warning_that_is_an_error_leaves_the_lock_free(holder: Any) -> None:
    lock = Lock()
    holder(lock.acquire).kill()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            lock.acquire()
    assert not lock.locked()


@pytest.mark.own_process
def test_a_killed_holders_permits_come_back(holder: Any) -> None:
    permits = BoundedSemaphore(2)
    child = holder(lambda: (permits.acquire(), permits.acquire()))
    assert permits.acquire(False) is False
    child.kill()
    with pytest.warns(RuntimeWarning, match="died while it held a BoundedSemaphore"):
        assert permits.acquire(timeout=LONG)
    permits.release()
    assert permits.get_value() == 2


@pytest.mark.own_process
def test_a_notification_is_not_lost_on_a_killed_waiter(fork: Any) -> None:
    condition = Condition(Lock())

    def wait() -> int:
        with condition:
            return 0 if condition.wait(LONG) else 1

    dead = fork(wait)
    wait_until(lambda: condition._condition.waiting() == 1)
    living = fork(wait)
    wait_until(lambda: condition._condition.waiting() == 2)
    dead.kill()
    with condition:
        condition.notify()
    assert living.join() == 0


@pytest.mark.own_process
def test_a_killed_party_breaks_the_barrier(fork: Any) -> None:
    barrier = Barrier(3)

    def meet() -> None:
        barrier.wait()

    child = fork(meet)
    wait_until(lambda: barrier.n_waiting == 1)
    killer = threading.Timer(0.01, child.kill)
    killer.start()
    with pytest.raises(threading.BrokenBarrierError, match=str(child.pid)):
        barrier.wait(LONG)
    killer.join()


@pytest.mark.own_process
def test_ctrl_c_ends_every_wait() -> None:
    lock = Lock()
    lock.acquire()
    barrier = Barrier(2)
    condition = Condition()

    def wait_notified() -> None:
        with condition:
            condition.wait()

    for wait in (lock.acquire, Semaphore(0).acquire, Event().wait, barrier.wait, wait_notified):
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        timer.join()
    assert condition._condition.waiting() == 0 and condition.acquire(False)


def test_many_locks_need_no_descriptors() -> None:
    code = """if True:
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        from shoal.multiprocessing.synchronize import Lock
        locks = [Lock() for _ in range(10_000)]
        for lock in locks:
            assert lock.acquire()
        assert not any(lock.acquire(False) for lock in locks)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=90)


# --- in started processes -------------------------------------------------------------------------------------------------


@pytest.mark.own_process
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_all_of_them_go_to_children_and_through_queues(method: str) -> None:
    ctx = mp.get_context(method)
    things = [
        ctx.Lock(),
        ctx.RLock(),
        ctx.Semaphore(1),
        ctx.BoundedSemaphore(2),
        ctx.Condition(),
        ctx.Event(),
        ctx.Barrier(2),
    ]
    value, array, queue, done = ctx.Value("i", 1), ctx.Array("i", [1, 2]), ctx.SimpleQueue(), ctx.Event()

    def use(things: list[Any], value: Any, array: Any, queue: Any, done: Any) -> None:
        lock, rlock, semaphore, bounded, condition, event, barrier = things
        lock.release()
        with rlock, semaphore, bounded, value.get_lock():
            value.value += 1
        array[0] = 7
        with condition:
            condition.notify()
        event.wait()
        barrier.wait()
        with queue.get() as had:
            assert had
        done.set()

    lock, _, _, _, condition, event, barrier = things
    lock.acquire()
    condition.acquire()
    process = ctx.Process(target=use, args=(things, value, array, queue, done))
    process.start()
    assert condition.wait(LONG)
    condition.release()
    assert lock.acquire(timeout=LONG)
    event.set()
    barrier.wait(LONG)
    queue.put(ctx.Lock())
    assert done.wait(LONG)
    process.join()
    assert process.exitcode == 0
    assert value.value == 2 and array[:] == [7, 2]
