"""Producers and consumers of a queue are killed at named points of put, get, allocate and release; run by
test_mp_queue.py.

    queue_chaos.py ROUNDS [SEED]     # kills of a producer, and of a consumer, at each point
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import sys
from collections.abc import Callable

from shoal._core import ipc
from shoal.multiprocessing.queues import Empty, Queue

POINTS = (
    *("queue.put.block", "queue.put.written", "queue.put.told", "queue.put.counted", "queue.wake.before"),
    *("queue.get.copied", "queue.get.block", "queue.get.counted", "queue.wait.enlisted"),
    *("queue.ring.spare", "queue.ring.replaced"),
    *("heap.allocate.before", "heap.allocate.after", "heap.acquire.before", "heap.acquire.after"),
    *("heap.release.before", "heap.release.after", "heap.release.dying"),
    *("heap.give.before", "heap.give.after", "heap.take.before", "heap.take.after"),
    *("heap.hold.before", "heap.hold.after"),
)
PRODUCERS = CONSUMERS = 2
ITEMS = 30
STARTED, DONE = PRODUCERS * ITEMS, PRODUCERS * ITEMS + PRODUCERS  # where the ledger has them
BOUND = 60
"""Seconds in which a round ends; each takes a fraction of one."""


def fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        body()
        code = 0
    finally:
        os._exit(code)


def produce(queue: Queue, ledger: mmap.mmap, who: int, named: Queue) -> None:
    for i in range(ITEMS):
        ledger[STARTED + who] = i + 1
        queue.put((who, i, named if i % 5 == 0 else b"x" * (0, 100, 4000, 9000)[i % 4]))
        ledger[DONE + who] = i + 1


def note(ledger: mmap.mmap, item: tuple) -> None:
    ledger[item[0] * ITEMS + item[1]] += 1


def consume(queue: Queue, ledger: mmap.mmap) -> None:
    while (item := queue.get()) is not None:
        note(ledger, item)


def armed(point: str, nth: int, body: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        ipc.arm_fault_point(point, nth)
        body()

    return run


def play(point: str, choose: random.Random) -> int:
    """One round; returns how many were killed."""
    queue, named = Queue(choose.choice((0, 5))), Queue()
    ledger = mmap.mmap(-1, 4096)
    nth = [choose.randint(1, choose.choice((2, 12))) for _ in range(2)]
    makers = [lambda who=who: produce(queue, ledger, who, named) for who in range(PRODUCERS)]
    takers = [lambda: consume(queue, ledger)] * CONSUMERS
    makers[0], takers[0] = armed(point, nth[0], makers[0]), armed(point, nth[1], takers[0])
    consumers = [fork(taker) for taker in takers]
    producers = [fork(maker) for maker in makers]
    killed_producers = reap(producers)
    for _ in range(2 * CONSUMERS):  # one that is killed may take one with it
        queue.put(None)
    killed_consumers = reap(consumers)
    ipc.sweep()
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            break
        if item is not None:
            note(ledger, item)
    account(ledger, len(killed_consumers), where=(point, *nth))
    assert ipc.check() == [], (point, nth, ipc.check())
    return len(killed_producers) + len(killed_consumers)


def reap(pids: list[int]) -> list[int]:
    """Those that were killed; the others ended well."""
    killed = []
    for pid in pids:
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            killed.append(pid)
        else:
            assert os.WEXITSTATUS(status) == 0
    return killed


def account(ledger: mmap.mmap, killed_consumers: int, where: tuple) -> None:
    lost = 0
    for who in range(PRODUCERS):
        for i in range(ITEMS):
            times = ledger[who * ITEMS + i]
            assert times <= 1, f"{where}: item {i} of {who} came {times} times"
            if times == 0 and i < ledger[DONE + who]:
                lost += 1
            assert times == 0 or i < ledger[STARTED + who]
    assert lost <= killed_consumers, f"{where}: {lost} items lost by {killed_consumers} deaths"


def main() -> None:
    rounds = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    choose = random.Random(seed)
    Queue()
    ipc.sweep()
    before = ipc.stats()["blocks"]
    kills = 0
    for _ in range(rounds):
        for point in POINTS:
            signal.alarm(BOUND)
            kills += play(point, choose)
            signal.alarm(0)
            assert ipc.stats()["blocks"] == before, point
    print(f"{kills} killed, nothing lost but what the dead had in their hands, {ipc.stats()['blocks']} blocks")


if __name__ == "__main__":
    main()
