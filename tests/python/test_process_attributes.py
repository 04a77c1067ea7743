"""What workers have of their parent's process when they are made, whatever zygote an earlier call has left."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
import shoal.multiprocessing as mp
from shoal.process import _attributes, close_launchers, launcher, zygotes

pytestmark = pytest.mark.own_process


class Attributes(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.users = os.getresuid(), os.getresgid(), os.getgroups()
        self.umask = os.umask(0o77)
        self.files = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.cpus = os.sched_getaffinity(0)
        self.nice = os.getpriority(os.PRIO_PROCESS, 0)


def of_workers(name: str, **options: Any) -> list[Any]:
    options.setdefault("affinity", "none")
    envs = shoal.make_vec(Attributes, 2, num_workers=2, worker=shoal.WorkerOptions(**options))
    found = list(envs.get_attr(name))
    envs.close()
    return found


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give up permissions")


@needs_root
@pytest.mark.parametrize(
    "drop",
    [
        lambda: os.setgroups([65533]),
        lambda: os.setresgid(65534, 65534, 65534),
        lambda: os.setresuid(65534, 0, 0),  # still allowed to start this interpreter, wherever it lies
    ],
)
def test_permissions_given_up_are_given_up_by_workers(drop: Callable[[], None]) -> None:
    before = of_workers("users")
    drop()
    now = (os.getresuid(), os.getresgid(), os.getgroups())
    assert now != before[0]
    assert of_workers("users") == [now, now]
    before_again = [found["pid"] for found in zygotes()]
    assert of_workers("users") == [now, now]
    assert [found["pid"] for found in zygotes()] == before_again


@needs_root
def test_a_launcher_of_other_permissions_is_kept_by_nobody_but_its_holders() -> None:
    first = launcher(preload=["json"])
    os.setresuid(65534, 0, 0)
    second = launcher(preload=["json"])
    assert second is not first and launcher(preload=["json"]) is second
    os.setresuid(0, 0, 0)
    assert launcher(preload=["json"]) not in (first, second)


def test_umask_limits_and_priority_are_those_of_now() -> None:
    of_workers("umask")
    before = zygotes()
    os.umask(0o27)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (777, hard))
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
    assert of_workers("umask") == [0o27, 0o27]
    assert of_workers("files") == [(777, hard)] * 2
    assert of_workers("nice") == [os.getpriority(os.PRIO_PROCESS, 0)] * 2
    assert [found["pid"] for found in zygotes()] == [found["pid"] for found in before]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_cpus_are_those_of_now_but_where_workers_are_placed() -> None:
    first, second, *_ = cpus = sorted(os.sched_getaffinity(0))
    of_workers("cpus")
    os.sched_setaffinity(0, {first})
    assert of_workers("cpus") == [{first}] * 2
    close_launchers()
    of_workers("cpus")  # of a zygote that has one
    os.sched_setaffinity(0, cpus)
    assert of_workers("cpus") == [set(cpus)] * 2
    assert of_workers("cpus", affinity=[[first], [second]]) == [{first}, {second}]
    os.sched_setaffinity(0, {second})
    assert of_workers("cpus", affinity=[[second]]) == [{second}] * 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_threads_with_cpus_of_their_own_share_a_zygote() -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    found: list[Any] = []

    def make(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        found.extend(of_workers("cpus"))

    for cpu in (first, second, first):
        thread = threading.Thread(target=make, args=(cpu,))
        thread.start()
        thread.join()
    assert found == [{first}, {first}, {second}, {second}, {first}, {first}]
    assert len(zygotes()) == 1


def say(queue: Any) -> None:
    queue.put((os.umask(0), os.sched_getaffinity(0)))


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_processes_of_multiprocessing_have_them_too(method: str) -> None:
    ctx = mp.get_context(method, allow_unsafe_fork=True) if method == "fork" else mp.get_context(method)
    queue = ctx.SimpleQueue()

    def ask() -> Any:
        process = ctx.Process(target=say, args=(queue,))
        process.start()
        said = queue.get()
        process.join()
        return said

    ask()
    os.umask(0o31)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    assert ask() == (0o31, os.sched_getaffinity(0))


def test_a_limit_that_may_not_be_raised_is_as_near_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def refuse(limit: int, wanted: tuple[int, int]) -> None:
        said.append(wanted)
        if wanted[1] > 100:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (50, 100))
    _attributes._set_limit(resource.RLIMIT_NOFILE, 80, 200)
    _attributes._set_limit(resource.RLIMIT_NOFILE, 150, 200)
    assert said == [(80, 200), (80, 100), (150, 200), (100, 100)]
