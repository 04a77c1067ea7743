"""Processes that environments fork, and forks of a program that has made workers, end as any other's do."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import pytest

import shoal
from own_programs import python
from sample_envs import CounterEnv
from written_modules import written_modules


class Forking(CounterEnv):
    """Its child leaves a call as `how` says; `status` is what it ended with."""

    how = "exit"
    status = -1

    def _fork(self) -> None:
        if (pid := os.fork()) == 0:
            if self.how == "exit":
                sys.exit(3)
            raise ValueError("of the child")
        self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def step(self, action: Any) -> Any:
        self._fork()
        return super().step(action)

    def forked(self) -> int:
        self._fork()
        return self.status


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("raise", 1)])
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 2}, {"on_fault": "restart"}, {"context": "spawn"}])
def test_a_child_of_an_environment_does_not_answer_for_its_worker(
    how: str, status: int, arguments: dict[str, Any]
) -> None:
    envs = shoal.make_vec(Forking, 2, num_workers=2, **arguments)
    envs.set_attr("how", how)
    envs.reset(seed=0)
    for _ in range(2):
        assert "fault" not in envs.step([0, 0])[4]
        assert envs.get_attr("status") == (status, status)
        assert envs.call("forked") == (status, status)
    envs.close()


def raise_in_environment(queue: Any) -> None:
    try:
        shoal.make_vec("no-such-id-v0", 1, num_workers=0)
    except Exception:
        queue.put("raised")
    envs = shoal.make_vec(Failing, 1, num_workers=0)
    envs.reset()
    try:
        envs.step([0])
    except ValueError:
        queue.put("caught")


class Failing(CounterEnv):
    def step(self, action: Any) -> Any:
        raise ValueError("as it should")


class Starting(CounterEnv):
    def started(self) -> list[str]:
        ctx = multiprocessing.get_context("fork")
        queue = ctx.SimpleQueue()
        process = ctx.Process(target=raise_in_environment, args=(queue,))
        process.start()
        process.join()
        return [queue.get() for _ in range(2)] if process.exitcode == 0 else [f"ended with {process.exitcode}"]


def test_a_process_that_an_environment_starts_catches_its_own_errors() -> None:
    with shoal.make_vec(Starting, 1, num_workers=1) as envs:
        assert envs.call("started") == (["raised", "caught"],)


@pytest.mark.parametrize(
    "made", ["shoal.process.launcher()", "shoal.make_vec('CartPole-v1', 2, num_workers=2).close()"]
)
def test_a_forked_child_of_a_program_reports_no_leak(made: str) -> None:
    done = python(
        f"import os, sys, shoal, shoal.process\nheld = {made}\n"
        "if os.fork() == 0: sys.exit(5)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("5\n", "", 0)


SOURCE = """
import random
import numpy as np
import torch
from sample_envs import CounterEnv

class Noisy(CounterEnv):
    def noise(self):
        return torch.randn(1).item(), np.random.random(), random.random()
"""


@pytest.fixture
def torch_is_there() -> None:
    pytest.importorskip("torch")


modules = written_modules(noisy_envs=SOURCE)


@pytest.mark.parametrize("pooled", [False, True])
def test_workers_of_one_zygote_draw_different_numbers(torch_is_there: None, modules: Any, pooled: bool) -> None:
    pool = shoal.WorkerPool(3, worker=shoal.WorkerOptions(preload=["noisy_envs"])) if pooled else None
    how: dict[str, Any] = {"pool": pool} if pool else {"num_workers": 3}
    with shoal.make_vec(modules[0].Noisy, 3, **how) as envs:
        drawn = envs.call("noise")
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == 3
    if pool:
        pool.close()


def test_workers_that_need_no_torch_do_not_import_it() -> None:
    with shoal.make_vec(Modules, 2, num_workers=2) as envs:
        assert envs.call("has_torch") == (False, False)


class Modules(CounterEnv):
    def has_torch(self) -> bool:
        return "torch" in sys.modules
