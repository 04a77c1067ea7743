"""Idle zygotes end by number and by time, and are shown by `stats()` and the doctor."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
import shoal.multiprocessing as mp
from shoal.doctor import processes
from shoal.process import close_launchers, keep_idle_zygotes, zygotes
from written_modules import written_modules

LONG = 60.0
"""Seconds that no passing test comes near."""

SOURCE = """
import gymnasium

def make():
    return gymnasium.make("CartPole-v1")
"""

modules = written_modules(**{f"factories_{i}": SOURCE for i in range(6)})


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """No zygote but the test's, and the limits are put back."""
    close_launchers()
    before = keep_idle_zygotes()
    yield
    close_launchers()
    keep_idle_zygotes(*before)


def use(module: types.ModuleType) -> int:
    """Makes environments of its factory and closes them; the zygote's process id."""
    before = {zygote["pid"] for zygote in zygotes()}
    envs = shoal.make_vec(module.make, 2, num_workers=1, backend="process")
    (zygote,) = {zygote["pid"] for zygote in envs.stats()["zygotes"]} - before
    envs.close()
    return zygote


def await_end(pid: int) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], LONG)[0], f"zygote {pid} stays"
    finally:
        os.close(pidfd)


def test_one_a_factory_module_stays_up_to_the_limit(modules: Any) -> None:
    keep_idle_zygotes(2, 3600.0)
    pids = [use(module) for module in modules]
    for pid in pids[:-2]:
        await_end(pid)
    assert {zygote["pid"] for zygote in zygotes()} == set(pids[-2:])
    assert all(zygote["workers"] == 0 and zygote["idle"] is not None for zygote in zygotes())
    again = shoal.make_vec(modules[0].make, 2, num_workers=1, backend="process")  # from a fresh one
    again.reset(seed=0)
    again.close()


def test_one_that_has_been_idle_for_too_long_ends_and_its_launcher_goes_with_it(modules: Any) -> None:
    keep_idle_zygotes(10, 0.0)
    supervisors = threads("shoal-super")
    pids = [use(module) for module in modules]
    for pid in pids:
        await_end(pid)
    while zygotes():
        pass  # their ends are being collected
    use(modules[0])  # which looks for launchers without a zygote
    assert threads("shoal-super") <= supervisors + 2  # its own, and that of one whose end is not known yet


def threads(name: str) -> int:
    return sum(
        (task / "comm").read_text().strip() == name for task in Path("/proc/self/task").iterdir() if task.exists()
    )


def test_one_with_a_worker_stays(modules: Any) -> None:
    keep_idle_zygotes(0, 0.0)
    envs = shoal.make_vec(modules[0].make, 2, num_workers=2, backend="process")
    (zygote,) = [zygote for zygote in zygotes() if zygote["workers"]]
    await_end(use(modules[1]))
    envs.reset(seed=0)
    envs.step([0, 0])
    assert [found["pid"] for found in zygotes()] == [zygote["pid"]]
    envs.close()
    await_end(zygote["pid"])


def test_stats_and_the_doctor_show_age_and_memory(modules: Any) -> None:
    envs = shoal.make_vec(modules[0].make, 2, num_workers=2, backend="process")
    (mine,) = envs.stats()["zygotes"]
    assert mine["workers"] == 2 and mine["idle"] is None and "factories_0" in mine["preload"]
    assert mine["age"] > 0 and mine["memory"] > 1 << 20
    envs.close()
    (finding,) = [finding for finding in processes.examine() if finding.name == "zygotes"]
    pid = zygotes()[0]["pid"]
    assert f"pid {pid} of {os.getpid()}: " in finding.value and "MiB" in finding.value and " idle" in finding.value
    assert finding.status == "ok"


def test_processes_of_multiprocessing_start_after_their_zygote_has_ended() -> None:
    keep_idle_zygotes(0, 0.0)
    ctx = mp.get_context("forkserver")
    for _ in range(3):
        queue = ctx.SimpleQueue()
        process = ctx.Process(target=lambda queue: queue.put(Path("/proc/self/comm").read_text()), args=(queue,))
        process.start()
        assert queue.get() == Path("/proc/self/comm").read_text()  # not a zygote's name
        process.join()
        assert process.exitcode == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "(4, 120.0)"),
        ({"SHOAL_IDLE_ZYGOTES": "0", "SHOAL_IDLE_ZYGOTE_SECONDS": "2.5"}, "(0, 2.5)"),
        ({"SHOAL_IDLE_ZYGOTES": "few"}, "SHOAL_IDLE_ZYGOTES takes a number of processes, 0 or more, got 'few'"),
        ({"SHOAL_IDLE_ZYGOTE_SECONDS": "-1"}, "SHOAL_IDLE_ZYGOTE_SECONDS takes seconds, 0 or more, got '-1'"),
    ],
)
def test_limits_come_from_the_environment(variables: dict[str, str], expected: str) -> None:
    program = "import shoal\ntry: print(shoal.process.keep_idle_zygotes())\nexcept ValueError as error: print(error)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_IDLE")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**environment, **variables}, timeout=LONG
    )
    assert expected in told.stdout, told.stderr


@pytest.mark.parametrize("limit", [{"count": -1}, {"count": 1.5}, {"count": True}, {"seconds": -0.1}, {"seconds": "1"}])
def test_other_limits_are_refused(limit: dict[str, Any]) -> None:
    before = keep_idle_zygotes()
    with pytest.raises(ValueError, match=next(iter(limit))):
        keep_idle_zygotes(**limit)
    assert keep_idle_zygotes() == before


@pytest.mark.own_process
def test_a_forked_child_has_none() -> None:
    shoal.make_vec("CartPole-v1", 1, num_workers=1, backend="process").close()
    assert zygotes()
    child = os.fork()
    if child == 0:
        os._exit(0 if zygotes() == [] and keep_idle_zygotes(1)[0] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
