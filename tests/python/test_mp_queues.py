"""shoal.multiprocessing's Queue, JoinableQueue and SimpleQueue."""

from __future__ import annotations

import collections
import gc
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import connection as cpython_connection
from typing import Any

import pytest

from shoal._core import ipc
from shoal.multiprocessing.queues import Empty, Full, JoinableQueue, Queue, SimpleQueue

FOREVER = 60.0
"""Seconds that no passing test waits."""

fork = multiprocessing.get_context("fork")


pytestmark = pytest.mark.usefixtures("balanced_heap")


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x


Named = collections.namedtuple("Named", "a b")

OBJECTS = [
    None,
    True,
    False,
    0,
    -1,
    127,
    128,
    -128,
    -129,
    2**15,
    -(2**31),
    2**31,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**100),
    1.5,
    float("inf"),
    "",
    "text",
    "größe 漢字 \U0001f600",
    "\ud800",
    "x" * 100_000,
    b"",
    b"bytes",
    b"y" * 100_000,
    bytearray(b"array"),
    (),
    (1, "two", 3.0),
    [],
    [1, [2, [3, [4]]]],
    {},
    {"a": 1, (1, 2): [3], None: {}},
    list(range(5000)),
    {1, 2},
    frozenset({1}),
    1j,
    range(3),
    ...,
    Point(3),
    Named(1, 2),
    collections.OrderedDict(a=1),
    [[[[[[[[[[[[1]]]]]]]]]]]],
    int,
    len,
]


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda obj: repr(obj)[:30])
def test_an_object_comes_out_as_it_went_in(obj: Any) -> None:
    for queue in (Queue(), SimpleQueue()):
        queue.put(obj)
        back = queue.get()
        assert type(back) is type(obj) and back == obj


def test_what_is_one_object_stays_one() -> None:
    queue = Queue()
    inner = [1]
    queue.put((inner, inner))
    first, second = queue.get()
    assert first is second
    inner.append(inner)
    queue.put(inner)
    back = queue.get()
    assert back[1] is back


def test_subclasses_of_built_in_types_keep_their_type() -> None:
    queue = Queue()
    queue.put([collections.Counter("ab"), True, 1])
    back = queue.get()
    assert type(back[0]) is collections.Counter and back[1] is True and type(back[2]) is int


def test_first_in_first_out() -> None:
    queue = Queue()
    for i in range(3000):
        queue.put((i, "x" * (i % 7000)))
    assert queue.qsize() == 3000
    assert [queue.get()[0] for _ in range(3000)] == list(range(3000))


def test_functions_and_classes_without_a_name_cross() -> None:
    class Local:
        value = 4

    queue = Queue()
    queue.put((lambda x: x + Local.value, Local))
    function, kind = queue.get()
    assert function(1) == 5 and kind.value == 4


def test_what_cannot_be_pickled_raises_at_put_and_leaves_nothing() -> None:
    queue = Queue()
    with pytest.raises((TypeError, pickle.PicklingError)):
        queue.put({"lock": threading.Lock()})
    assert queue.qsize() == 0
    queue.put(1)
    assert queue.get() == 1


def test_what_is_put_is_as_it_was_then() -> None:
    queue = Queue()
    items = [1, 2]
    queue.put(items)
    items.append(3)
    assert queue.get() == [1, 2]


def test_empty_and_full() -> None:
    queue = Queue(2)
    assert queue.empty() and not queue.full() and queue.qsize() == 0
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(True, 0.01)
    with pytest.raises(Empty):
        queue.get(timeout=-1)
    queue.put(1)
    queue.put_nowait(2)
    assert queue.full() and not queue.empty()
    with pytest.raises(Full):
        queue.put(3, False)
    with pytest.raises(Full):
        queue.put(3, timeout=0.01)
    assert queue.get(False) == 1
    queue.put(3, block=True, timeout=FOREVER)
    assert [queue.get(), queue.get()] == [2, 3]


def test_block_and_timeout_are_what_pythons_queues_take() -> None:
    queue = Queue(1)
    with pytest.raises(Empty):
        queue.get(0)
    queue.put(1, 1)
    with pytest.raises(Full):
        queue.put(2, block=[])
    assert queue.get(1) == 1
    with pytest.raises(TypeError, match="must be real number, not str"):
        queue.get(True, "a")
    with pytest.raises(OverflowError, match="too large"):
        queue.put(2, timeout=10**400)
    with pytest.raises(ValueError, match="not nan"):
        queue.get(timeout=float("nan"))
    assert queue.empty()


def test_a_queue_without_limit_takes_what_comes() -> None:
    queue = Queue()
    for _ in range(20):
        queue.put(b"x" * 2**20)
    assert not queue.full() and queue.qsize() == 20


def test_a_closed_queue() -> None:
    queue = Queue()
    with pytest.raises(AssertionError, match="not closed"):
        queue.join_thread()
    queue.put(1)
    queue.close()
    queue.close()
    queue.cancel_join_thread()
    queue.join_thread()
    with pytest.raises(ValueError, match="is closed"):
        queue.put(2)
    with pytest.raises(ValueError, match="is closed"):
        queue.get()
    simple = SimpleQueue()
    simple.close()
    with pytest.raises(OSError, match="closed"):
        simple.put(1)


def test_a_stock_pickle_is_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeError, match="shoal.multiprocessing"):
        pickle.dumps(Queue())


def test_a_queue_crosses_a_queue() -> None:
    outer, inner = Queue(), Queue(3)
    inner.put("before")
    outer.put({"q": inner, "again": [inner]})
    got = outer.get()
    assert got["q"] is got["again"][0] and type(got["q"]) is Queue and got["q"]._maxsize == 3
    assert got["q"].get() == "before"
    got["q"].put("after")
    assert inner.get() == "after"


def test_a_queue_holds_what_crosses_until_it_is_taken() -> None:
    outer = Queue()
    inner = Queue()
    inner.put("inside")
    outer.put(inner)
    del inner
    gc.collect()
    assert outer.get().get() == "inside"


def test_task_done_and_join() -> None:
    queue = JoinableQueue()
    queue.join()
    with pytest.raises(ValueError, match="task_done"):
        queue.task_done()
    for i in range(3):
        queue.put(i)
    done = []

    def work() -> None:
        while (item := queue.get()) is not None:
            done.append(item)
            queue.task_done()
        queue.task_done()

    worker = threading.Thread(target=work)
    worker.start()
    queue.join()
    assert done == [0, 1, 2]
    queue.put(None)
    queue.join()
    worker.join()
    with pytest.raises(ValueError, match="too many times"):
        queue.task_done()


def test_a_subclass_may_override() -> None:
    class Doubling(Queue):
        def put(self, obj: Any, *args: Any) -> None:
            super().put(obj * 2, *args)

    queue = Doubling()
    queue.put(4)
    queue.note = "kept"
    other = Queue()
    other.put(queue)
    back = other.get()
    assert type(back).__name__ == "Doubling" and back.note == "kept" and back.get() == 8


def test_the_ends_that_others_reach_for() -> None:
    queue = SimpleQueue()
    queue.put((1, 2))
    assert queue._reader.poll() and cpython_connection.wait([queue._reader], FOREVER)[0].recv() == (1, 2)
    assert not queue._reader.poll() and queue.empty()
    with queue._wlock:
        queue._writer.send("sent")
    with queue._rlock:
        assert pickle.loads(queue._reader.recv_bytes()) == "sent"
    queue._writer.send_bytes(pickle.dumps([3]))
    assert queue.get() == [3]


def test_the_descriptor_is_readable_while_there_are_objects() -> None:
    queue = Queue()

    def readable() -> bool:
        return bool(select.select([queue.fileno()], [], [], 0)[0])

    assert not readable()
    queue.put(1)
    queue.put(2)
    assert readable()
    queue.get()
    assert readable()
    queue.get()
    assert not readable()


def test_threads_share_a_queue() -> None:
    queue, results = Queue(8), Queue()

    def work() -> None:
        total = 0
        while (item := queue.get()) is not None:
            total += item
        results.put(total)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        queue.put(i)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    assert sum(results.get() for _ in threads) == sum(range(2000))


@pytest.mark.own_process
def test_processes_share_a_queue() -> None:
    queue, results = Queue(8), Queue()

    def work() -> None:
        total = 0
        while (item := queue.get()) is not None:
            total += item["n"]
        results.put((os.getpid(), total))

    workers = [fork.Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for i in range(2000):
        queue.put({"n": i, "load": b"x" * (i * 7 % 9000)})
    for _ in workers:
        queue.put(None)
    totals = dict(results.get(timeout=FOREVER) for _ in workers)
    for worker in workers:
        worker.join()
    assert sum(totals.values()) == sum(range(2000))
    assert set(totals) == {worker.pid for worker in workers}


@pytest.mark.own_process
def test_the_producer_may_be_gone_before_its_objects_are_read() -> None:
    queue = Queue()
    producer = fork.Process(target=lambda: [queue.put(b"x" * n) for n in (10, 10_000, 10_000_000)])
    producer.start()
    producer.join()
    ipc.sweep()
    assert [len(queue.get(timeout=FOREVER)) for _ in range(3)] == [10, 10_000, 10_000_000]


@pytest.mark.own_process
def test_join_before_get_of_much_ends() -> None:
    """A child that has put more than a pipe holds ends all the same (python/cpython#91594 and kin)."""
    for queue in (Queue(), SimpleQueue()):
        child = fork.Process(target=queue.put, args=(b"x" * 2**21,))
        child.start()
        child.join(FOREVER)
        assert child.exitcode == 0
        assert len(queue.get()) == 2**21


@pytest.mark.own_process
def test_a_getter_that_is_killed_while_it_waits_costs_nothing() -> None:
    queue = Queue()
    waiting = [fork.Process(target=queue.get) for _ in range(3)]
    for process in waiting:
        process.start()
    ready = Queue()
    survivor = fork.Process(target=lambda: (ready.put(1), ready.put(queue.get())))
    survivor.start()
    ready.get(timeout=FOREVER)
    for process in waiting:
        process.kill()
        process.join()
    queue.put("for the survivor")
    assert ready.get(timeout=FOREVER) == "for the survivor"
    survivor.join()


INTERRUPTED = """
import os, signal, sys, threading
from shoal.multiprocessing.queues import Queue
queue = Queue(1)
queue.put(0)
begun = threading.Event()
def interrupt():
    begun.wait()
    while open(f"/proc/self/task/{os.getpid()}/syscall").read().split()[0] != sys.argv[2]: pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    begun.set()
    queue.put(1) if sys.argv[1] == "put" else (queue.get(), queue.get())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["put", "get"])
def test_ctrl_c_ends_a_wait(what: str) -> None:
    futex = {"x86_64": "202", "aarch64": "98"}[os.uname().machine]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, what, futex], capture_output=True, text=True, timeout=FOREVER
    )
    assert done.stdout == "interrupted\n", done.stderr


@pytest.mark.own_process
def test_a_few_descriptors_are_enough_for_many_queues() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    Queue()
    before = len(os.listdir("/proc/self/fd"))
    queues = [Queue() for _ in range(500)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        for queue in queues:
            queue.put(1)
        assert [queue.get(timeout=FOREVER) for queue in queues] == [1] * 500
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def put_for_ever(queue: Queue, who: int) -> None:
    for i in itertools.count():
        queue.put((who, i, b"x" * (i * 37 % 9000)))


@pytest.mark.own_process
def test_objects_of_killed_processes_are_whole_and_in_order() -> None:
    """Producers are killed at any moment: what comes out is a prefix of what each of them put."""
    for _ in range(10):
        queue = Queue()
        producers = [fork.Process(target=put_for_ever, args=(queue, who)) for who in range(2)]
        for producer in producers:
            producer.start()
        while queue.qsize() < 200:
            time.sleep(0)
        for producer in producers:
            os.kill(producer.pid, signal.SIGKILL)
            producer.join()
        ipc.sweep()
        following = [0, 0]
        while True:
            try:
                who, i, data = queue.get_nowait()
            except Empty:
                break
            assert i == following[who] and len(data) == i * 37 % 9000
            following[who] += 1
        assert ipc.check() == []
