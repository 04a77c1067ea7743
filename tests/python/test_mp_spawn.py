"""shoal.multiprocessing.spawn() and start_processes(): torch's, with its errors."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from typing import Any

import pytest

import shoal.multiprocessing as mp

METHODS = ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.own_process)]


@pytest.mark.parametrize("method", METHODS)
def test_each_process_gets_its_index(method: str) -> None:
    reader, writer = mp.Pipe(duplex=False)
    mp.start_processes(lambda i, out, x: out.send((i, x)), args=(writer, "x"), nprocs=3, start_method=method)
    assert sorted(reader.recv() for _ in range(3)) == [(0, "x"), (1, "x"), (2, "x")]


def fail(i: int, which: int) -> None:
    if i == which:
        raise ValueError(f"from process {i}")
    time.sleep(1000)


@pytest.mark.parametrize("method", METHODS)
def test_the_first_exception_is_raised_with_its_traceback_and_ends_the_others(method: str) -> None:
    with pytest.raises(mp.ProcessRaisedException, match="\nValueError: from process 1$") as caught:
        mp.start_processes(fail, args=(1,), nprocs=2, start_method=method)
    assert caught.value.error_index == 1 and caught.value.error_pid > 0
    assert str(caught.value).startswith("\n\n-- Process 1 terminated with the following error:\nTraceback")
    assert not mp.active_children()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.msg, again.error_index, again.error_pid) == (caught.value.msg, 1, caught.value.error_pid)


def end(i: int, how: Any) -> None:
    if i == 0:
        how()
    time.sleep(1000)


@pytest.mark.parametrize("method", METHODS)
def test_an_exit_and_a_signal_are_told_apart(method: str) -> None:
    with pytest.raises(mp.ProcessExitedException, match="^process 0 terminated with exit code 123$") as exited:
        mp.start_processes(end, args=(lambda: sys.exit(123),), nprocs=2, start_method=method)
    assert (exited.value.exit_code, exited.value.signal_name) == (123, None)
    with pytest.raises(mp.ProcessExitedException, match="^process 0 terminated with signal SIGKILL$") as killed:
        mp.start_processes(end, args=(lambda: os.kill(os.getpid(), signal.SIGKILL),), nprocs=2, start_method=method)
    assert (killed.value.exit_code, killed.value.signal_name) == (-signal.SIGKILL, "SIGKILL")


def test_spawn_without_join_returns_the_processes() -> None:
    group = mp.spawn(time.sleep, args=(), nprocs=2, join=False)
    assert isinstance(group, mp.ProcessContext) and len(set(group.pids())) == 2
    while not group.join(timeout=30):
        pass
    assert group.join() is True


def test_spawn_warns_of_another_method_and_its_old_name_of_the_context() -> None:
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        mp.spawn(print, nprocs=0, start_method="fork")
    with pytest.warns(UserWarning, match="renamed to ProcessContext"):
        mp.SpawnContext([], [])
