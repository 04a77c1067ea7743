"""What is said of processes and model servers whose zygote was killed: its name, not an exit code that nobody collected."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shoal
import shoal.multiprocessing as mp
from served_models import pid
from shoal.errors import ServiceDied, WorkerDied

LONG = 60.0
"""Seconds that no passing test comes near."""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """No zygote but that of the test: what the test before caught holds its pool, and that a zygote, until it is collected."""
    gc.collect()
    shoal.process.close_launchers()
    yield


def kill_zygote() -> str:
    """How the end of what it takes along is told."""
    (zygote,) = [zygote["pid"] for zygote in shoal.process.zygotes() if zygote["workers"]]
    os.kill(zygote, signal.SIGKILL)
    return f"ended with its zygote (pid {zygote}), which ended with signal 9 (SIGKILL) and takes its workers with it"


def sleep(begun: Any) -> None:
    begun.release()
    time.sleep(600)


def test_a_process_has_cpythons_exit_code_for_a_lost_status() -> None:
    ctx = mp.get_context("forkserver")
    begun = ctx.Semaphore(0)
    process = ctx.Process(target=sleep, args=(begun,))
    process.start()
    assert begun.acquire(timeout=LONG)
    kill_zygote()
    process.join(LONG)
    assert process.exitcode == 255


def sleep_first(index: int, begun: Any) -> None:
    sleep(begun)


def test_spawned_processes_are_told_of_by_their_zygote() -> None:
    begun = mp.get_context("forkserver").Semaphore(0)
    processes = mp.start_processes(sleep_first, (begun,), nprocs=2, join=False, start_method="forkserver")
    assert begun.acquire(timeout=LONG) and begun.acquire(timeout=LONG)
    why = kill_zygote()
    with pytest.raises(mp.ProcessExitedException) as ended:
        while not processes.join(LONG):
            pass
    assert why in str(ended.value) and ended.value.exit_code == 255


def square(number: int) -> int:
    return number * number


def test_a_pool_names_the_zygote_and_goes_on() -> None:
    ctx = mp.get_context("forkserver")
    begun = ctx.Semaphore(0)
    with ctx.Pool(6, initializer=keep, initargs=(begun,)) as pool:
        assert pool.map(square, range(12)) == [number * number for number in range(12)]
        task = pool.apply_async(sleep_kept)
        assert begun.acquire(timeout=LONG)
        why = kill_zygote()
        with pytest.raises(WorkerDied) as died:
            task.get(LONG)
        assert why in str(died.value)
        assert (died.value.kind, died.value.exitcode) == ("killed", 255)
        assert pool.map(square, range(12)) == [number * number for number in range(12)]


def keep(begun: Any) -> None:
    global kept
    kept = begun


def sleep_kept() -> None:
    sleep(kept)


def test_a_model_service_names_the_zygote() -> None:
    with shoal.ModelService({"pid": pid}) as service:
        assert service.model("pid")(0) > 0
        why = kill_zygote()
        with pytest.raises(ServiceDied) as died:
            while True:
                service.model("pid")(0)
        while why not in str(died.value):  # the first only tells that the connection is closed
            with pytest.raises(ServiceDied) as died:
                service.model("pid")(0)


def test_servers_of_a_model_service_come_back_together() -> None:
    with shoal.ModelService({"pid": pid}, instances=3, on_fault="restart") as service:
        before = {int(service.model("pid")(0)) for _ in range(20)}
        kill_zygote()
        while int(service.model("pid")(0)) in before:
            pass  # it lives a moment longer than its zygote
