"""Programs that end while daemon threads hold our objects, or are inside their calls: they end well, print nothing, and leave
nothing. Real leaks are still told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SETUP = """
import sys, threading, time
import gymnasium, numpy as np
import shoal, shoal.multiprocessing as mp

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, **_):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(0.0001)  # lets the GIL go
        return np.zeros(2, np.float32), 0.0, False, False, {}

def double(x):
    return 2 * x

running = threading.Event()

def stepping(env, **options):
    envs = shoal.make_vec(env, 2, **options)
    envs.reset(seed=0)
    while True:
        envs.step(np.zeros(2, int))
        running.set()

def receiving(**options):
    envs = shoal.make_vec(Env, 4, batch_size=2, **options)
    envs.async_reset(seed=0)
    while True:
        ids = envs.recv()[-1]["env_id"]
        running.set()
        envs.send(np.zeros(2, int), ids)

def holding(thing):
    running.set()
    threading.Event().wait()

def waiting(call):
    running.set()
    call()

def both(call):
    while True:
        call()
        running.set()

def training():
    trainer = shoal.learn.Trainer("shoal/CartPole-v1", total_steps=10**9, run_dir=sys.argv[1])
    trainer.start()
    while True:
        trainer.wait(0.001)
        running.set()

def asking():
    with shoal.ModelService({"double": double}) as service:
        model = service.model("double")
        while True:
            model(np.ones(2))
            running.set()

def taking(lock):
    lock.acquire()
    waiting(lock.acquire)

def of_pool():
    pool = shoal.WorkerPool(1)
    stepping(Env, pool=pool)

def pooling():
    pool = mp.Pool(1)
    both(lambda: pool.apply(abs, (1,)))

def talking(queue):
    def talk():
        queue.put(1)
        queue.get()
    both(talk)

if __name__ == "__main__":
    threading.excepthook = lambda args: None  # what atexit has closed raises in the thread: that is its own affair
    threading.Thread(target=lambda: eval(sys.argv[2]), daemon=True).start()
    running.wait()
    time.sleep(float(sys.argv[3]))  # anywhere in its loop
"""

CASES = {
    "environments in workers are held": "holding(shoal.make_vec(Env, 2, num_workers=1))",
    "environments of this process are held": "holding(shoal.make_vec(Env, 2, backend='serial'))",
    "environments of this process are stepped": "stepping(Env, backend='serial')",
    "environments in workers are stepped": "stepping(Env, num_workers=2)",
    "native environments are stepped": "stepping('shoal/CartPole-v1', num_workers=2)",
    "native environments in workers are stepped": "stepping('shoal/CartPole-v1', num_workers=2, backend='process')",
    "environments of a pool are stepped": "of_pool()",
    "environments are received": "receiving(num_workers=2)",
    "environments of this process are received": "receiving(backend='serial')",
    "a model is asked": "asking()",
    "a queue is used": "talking(mp.Queue())",
    "a queue is waited for": "waiting(mp.Queue().get)",
    "a pipe is waited for": "waiting(mp.Pipe()[0].recv)",
    "a lock is waited for": "taking(mp.Lock())",
    "an event is waited for": "waiting(mp.Event().wait)",
    "a pool of processes is held": "holding(mp.Pool(1))",
    "a pool of processes works": "pooling()",
    "a trainer trains": "training()",
    "a shared array is held": "holding(mp.SharedArray(np.zeros(3)))",
}


def run(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "script.py"
    file.write_text(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)


@pytest.mark.parametrize("case", CASES)
def test_a_program_ends_while(case: str, tmp_path: Path) -> None:
    for attempt, pause in enumerate(("0", "0.003")):
        ended = run(tmp_path, SETUP, str(tmp_path / f"run{attempt}"), CASES[case], pause)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_leak_is_told_where_no_thread_is_left(tmp_path: Path) -> None:
    leaking = """
        import ctypes, shoal
        envs = shoal.make_vec("shoal/CartPole-v1", 2)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(envs._engine))
    """
    ended = run(tmp_path, textwrap.dedent(leaking))
    assert ended.returncode == 0 and "nanobind: leaked 1 instances" in ended.stderr


def test_what_torch_does_not_let_go_is_no_leak(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = """
        import numpy as np, torch
        import shoal.multiprocessing as mp
        inbox, outbox = mp.Queue(), mp.Queue()
        inbox.put(np.ones(10_000, "f4"))
        batch = torch.from_numpy(inbox.get())
        outbox.put(batch)
    """
    ended = run(tmp_path, textwrap.dedent(script))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
