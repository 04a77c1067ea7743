"""Clients and servers of a model service are killed at named points and at random moments while others go on; run by
test_model_service.py.

    serve_chaos.py ROUNDS SEED     # kills, after each of which every client is answered in the time that promise.py counts
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import random
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import shoal
from promise import await_that
from shoal._core import ipc
from shoal.errors import Cancelled, DeadlineExceeded, ServiceDied

CLIENT_POINTS = [f"serve.submit.{point}" for point in ("queued", "announced", "claimed", "written", "ready")]
SERVER_POINTS = ["serve.take.closed", "serve.open.stored", "serve.reply.written", "serve.reply.finished"]
CLIENTS = 4
WIDTH = 200  # numbers of a row
HANG = 60.0  # seconds that the traffic of the clients to a point never comes near
KINDS = ("client at random", "client at a point", "server at random", "server at a point")


class Doubled:
    """Answers x as 2 x, and with its two weights, which an update that is torn would show as two numbers."""

    def __init__(self) -> None:
        self.weights = {"a": np.ones(500), "b": np.ones(500)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights.update(state)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        marks = np.array([self.weights["a"][0], self.weights["b"][-1]])
        return np.concatenate([2 * x, np.broadcast_to(marks, (len(x), 2))], axis=1)


def arm(request: np.ndarray) -> np.ndarray:
    """Has its server killed at SERVER_POINTS[i] when it passes there for the n-th time, where a row is (i, n)."""
    ((point, nth),) = request
    if nth > 0:
        ipc.arm_fault_point(SERVER_POINTS[int(point)], int(nth))
    return request


class Ledger:
    """What every client has been answered, in memory that all share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def add(self, who: int) -> None:
        struct.pack_into("Q", self._memory, 8 * who, self.of(who) + 1)

    def of(self, who: int) -> int:
        return struct.unpack_from("Q", self._memory, 8 * who)[0]

    def end(self) -> None:
        self._memory[-1] = 1

    @property
    def ended(self) -> bool:
        return self._memory[-1] == 1


def check(answer: np.ndarray, value: float, version: int | None) -> None:
    """Of one row: it is that of this question, whole, and of one version of the weights."""
    assert (answer[:-2] == 2 * value).all(), f"asked with {value}, answered with {answer}"
    assert answer[-2] == answer[-1], f"of two versions: {answer[-2:]}"
    assert version is None or answer[-1] == version, f"of version {answer[-1]}, and says {version}"


def ask(model: Any, dice: random.Random, value: float) -> None:
    """One of the ways to ask."""
    way = dice.randrange(5)
    if way == 0:
        check(model(np.full(WIDTH, value)), value, model.version)
    elif way == 1:
        values = value + np.arange(dice.randint(1, 9))
        for one, answer in zip(values, model.batch(np.repeat(values[:, None], WIDTH, 1)), strict=True):
            check(answer, one, None)
    elif way == 2:
        with contextlib.suppress(DeadlineExceeded):
            check(model(np.full(WIDTH, value), timeout=dice.choice((1e-5, 1e-3))), value, None)
    else:
        replies = [model.submit(np.full(WIDTH, value + i)) for i in range(3)]
        if way == 4:
            replies[1].cancel()
        for i, reply in enumerate(replies):
            try:
                check(reply.result(), value + i, reply.version)
            except Cancelled:
                assert way == 4 and i == 1


def live(service: shoal.ModelService, ledger: Ledger, who: int, seed: int) -> None:
    """A client's life, until the ledger ends."""
    dice = random.Random(seed)
    model = service.model("doubled")
    while not ledger.ended:
        with contextlib.suppress(ServiceDied):
            ask(model, dice, dice.randrange(10**6))
            ledger.add(who)


class Chaos:
    """A service, its clients, and their deaths."""

    def __init__(self, seed: int, max_delay: float) -> None:
        self.dice = random.Random(seed)
        self.ledger = Ledger()
        self.killed: Counter[str] = Counter()
        self.longest: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self.service = shoal.ModelService(
            {"doubled": Doubled, "arm": arm}, max_batch=4, max_delay=max_delay, on_fault="restart"
        )
        self.clients = [0] * CLIENTS
        for who in range(CLIENTS):
            self.start(who)

    def start(self, who: int, body: Callable[[], None] = lambda: None) -> None:
        seed = self.dice.randrange(2**32)
        pid = os.fork()
        if pid:
            self.clients[who] = pid
            return
        try:
            body()
            live(self.service, self.ledger, who, seed)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(3)

    def kill_one(self) -> None:
        kind = self.dice.choice(KINDS)
        who = self.dice.randrange(CLIENTS)
        nth = self.dice.randint(1, self.dice.choice((3, 60)))
        time.sleep(self.dice.uniform(0, 0.005))
        if kind == "client at random":
            self.replace(who)
        elif kind == "client at a point":
            self.replace(who, lambda point=self.dice.choice(CLIENT_POINTS): ipc.arm_fault_point(point, nth))
            self.reap(who)
            self.start(who)
        else:
            server = self.service._workers[0].pid
            with watched(server) as ended:
                if kind == "server at random":
                    os.kill(server, signal.SIGKILL)
                else:
                    self.arm(ended, np.array([self.dice.randrange(len(SERVER_POINTS)), nth]))
                assert select.select([ended], [], [], HANG)[0], f"the server passes no {kind}"
        self.killed[kind] += 1
        self.longest[kind] = max(self.longest[kind], self.all_are_answered())

    def arm(self, ended: int, request: np.ndarray) -> None:
        """Not by a call, which would be made again with the next server."""
        while not select.select([ended], [], [], 0)[0]:
            with contextlib.suppress(ServiceDied):
                self.service.model("arm").submit(request).result()
                return

    def replace(self, who: int, body: Callable[[], None] = lambda: None) -> None:
        os.kill(self.clients[who], signal.SIGKILL)
        self.reap(who)
        self.start(who, body)

    def reap(self, who: int) -> None:
        _, status = os.waitpid(self.clients[who], 0)
        self.clients[who] = 0
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"a client ended with {status:#x}"

    def all_are_answered(self) -> float:
        """Seconds until every client has been answered anew, twice: the first may have been on its way."""
        start = time.monotonic()
        wanted = [self.ledger.of(who) + 2 for who in range(CLIENTS)]
        try:
            await_that(
                lambda: all(self.ledger.of(who) >= wanted[who] for who in range(CLIENTS)),
                "an answer for every client",
            )
        except AssertionError as late:
            missing = [self.ledger.of(who) - wanted[who] for who in range(CLIENTS)]
            raise AssertionError(f"{late}: {missing} of {self.clients}") from None
        return time.monotonic() - start

    def end(self) -> None:
        """All who live end well, and the server keeps nothing of anybody."""
        self.ledger.end()
        for pid in self.clients:
            assert os.waitpid(pid, 0)[1] == 0
        self.clients = []
        model = self.service.model("doubled")
        for row in model.batch(np.zeros((64, WIDTH))):  # every buffer and slot is there
            check(row, 0, None)

        def nothing_is_kept() -> bool:
            model(np.zeros(WIDTH))
            return self.service.stats()["doubled"]["clients"] <= 1 and mapped_slots(self.service._workers[0].pid) <= 2

        await_that(nothing_is_kept, "that the server keeps nothing of anybody")

    def close(self) -> None:
        for pid in self.clients:
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.service.close()


def mapped_slots(pid: int) -> int:
    """How many ClientSlots a server has mapped; the driver has two, one for each of its queues."""
    return Path(f"/proc/{pid}/maps").read_text().count("shoal-serve-slots")


def descriptors() -> Counter[str]:
    """What this process has open, by kind."""
    gc.collect()
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own
            found[os.readlink(f"/proc/self/fd/{fd}").split("[")[0]] += 1
    return found


@contextlib.contextmanager
def watched(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


def update_for_ever(service: shoal.ModelService, over: threading.Event) -> None:
    version = 2
    while not over.wait(0.001):
        with contextlib.suppress(ServiceDied):
            values = {"a": np.full(500, float(version)), "b": np.full(500, float(version))}
            service.update("doubled", values, version=version, mode="latest")
        version += 1


def play(rounds: int, seed: int, max_delay: float) -> tuple[Counter[str], dict[str, float]]:
    chaos = Chaos(seed, max_delay)
    over = threading.Event()
    updates = threading.Thread(target=update_for_ever, args=(chaos.service, over))
    updates.start()
    try:
        chaos.all_are_answered()
        for _ in range(rounds):
            chaos.kill_one()
        over.set()
        updates.join()
        chaos.end()
    finally:
        over.set()
        updates.join()
        chaos.close()
    return chaos.killed, chaos.longest


def main() -> None:
    rounds, seed = int(sys.argv[1]), int(sys.argv[2])
    play(0, seed, 0.0)  # what the first service keeps warm
    before = descriptors()
    for max_delay, part in ((0.0, (rounds + 1) // 2), (3600.0, rounds // 2)):
        start = time.monotonic()
        killed, longest = play(part, seed, max_delay)
        print(f"max_delay {max_delay:g}: {part} killed in {time.monotonic() - start:.1f} s")
        for kind in KINDS:
            print(f"  {killed[kind]:5} {kind:18} all answered after {1000 * longest[kind]:.0f} ms at most")
    assert not descriptors() - before, descriptors() - before


if __name__ == "__main__":
    main()
