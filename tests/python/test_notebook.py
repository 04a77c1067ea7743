"""In a real kernel of Jupyter: environments that cells define, a cell that is interrupted, a kernel that is started again."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal

pytest.importorskip("ipykernel")
from jupyter_client.manager import KernelManager

# The kernel, which is the module's, keeps zygotes for its next workers.
pytestmark = pytest.mark.keeps_processes

DEADLINE = 60
DOUBLING = """
import gymnasium
import numpy as np
import shoal

class Doubling(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), {}

    def step(self, action):
        return 2 * action, float(action[0]), False, False, {}
"""
MADE = "envs = shoal.make_vec(Doubling, num_envs=2, num_workers=2)\nenvs.reset(seed=0)\n"
"""`[worker["pid"] for worker in envs.health()]` are its workers."""


class Notebook:
    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
        path = os.pathsep.join(
            filter(None, [str(Path(shoal.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")])
        )
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, "PYTHONPATH": path})
        self._connect()

    def _connect(self) -> None:
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=DEADLINE)

    def begin(self, cell: str) -> str:
        """Starts a cell, and waits until it prints; returns the id of its message."""
        request = self.client.execute(cell)
        while next(self._told(request))[0] != "stream":
            pass
        return request

    def end(self, request: str) -> tuple[str, str]:
        """Waits for a cell: what it has printed since, and the name of the error that ended it, or ""."""
        printed = ""
        for kind, content in self._told(request):
            if kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            if kind == "status" and content["execution_state"] == "idle":
                break
        return printed, self.client.get_shell_msg(timeout=DEADLINE)["content"].get("ename", "")

    def run(self, cell: str) -> str:
        printed, error = self.end(self.client.execute(cell))
        assert not error, f"{error} in\n{cell}"
        return printed

    def _told(self, request: str) -> Iterator[tuple[str, dict[str, Any]]]:
        while True:
            message = self.client.get_iopub_msg(timeout=DEADLINE)
            if message["parent_header"].get("msg_id") == request:
                yield message["msg_type"], message["content"]

    def restart(self) -> None:
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self._connect()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    made = Notebook(tmp_path_factory.mktemp("notebook"))
    made.run(DOUBLING)
    yield made
    made.close()


def workers(notebook: Notebook) -> list[int]:
    return ast.literal_eval(notebook.run("print([worker['pid'] for worker in envs.health()])"))


def test_an_environment_of_a_cell_is_stepped_in_workers_until_the_cell_is_changed(notebook: Notebook) -> None:
    step = "print(envs.step(np.full((2, 1), 0.5, np.float32))[0].ravel().tolist())"
    assert notebook.run(MADE + step) == "[1.0, 1.0]\n"
    notebook.run(
        "class Doubling(Doubling):\n    def step(self, action):\n        return 3 * action, 0.0, False, False, {}"
    )
    assert notebook.run(step) == "[1.0, 1.0]\n"
    assert notebook.run("envs.close()\n" + MADE + step + "\nenvs.close()") == "[1.5, 1.5]\n"
    notebook.run(DOUBLING)


def test_interrupt_ends_the_cell_and_leaves_the_workers(notebook: Notebook) -> None:
    notebook.run(MADE)
    before = workers(notebook)
    cell = notebook.begin("print('steps', flush=True)\nwhile True:\n    envs.step(np.zeros((2, 1), np.float32))")
    notebook.manager.interrupt_kernel()
    assert notebook.end(cell)[1] == "KeyboardInterrupt"
    assert workers(notebook) == before
    notebook.run("envs.close()\n" + MADE + "envs.step(np.zeros((2, 1), np.float32))\nenvs.close()")


def test_training_is_interrupted_resumable(notebook: Notebook) -> None:
    cell = notebook.begin(
        "shoal.learn.train('CartPole-v1', num_workers=0, total_steps=10_000_000, target_return=None, eval_every=0,\n"
        "    run_dir='run', callback=lambda status: print(status['step'], flush=True))"
    )
    notebook.manager.interrupt_kernel()
    assert notebook.end(cell)[1] == "KeyboardInterrupt"
    assert (
        notebook.run(
            "with shoal.learn.Trainer(run_dir='run', resume=True) as trainer:\n    print(trainer.status()['resume'])"
        )
        == "pending\n"
    )


def test_a_kernel_that_is_started_again_leaves_no_worker(notebook: Notebook) -> None:
    notebook.run(MADE)
    before = workers(notebook)
    notebook.restart()
    limit = time.monotonic() + DEADLINE
    while any(Path(f"/proc/{pid}").exists() for pid in before):
        assert time.monotonic() < limit, "workers outlived their kernel"
        time.sleep(0.05)
    assert notebook.run(DOUBLING + MADE + "print(envs.num_envs)\nenvs.close()") == "2\n"
