"""Worker processes from Python: what they are given, what they say, and how they end, for every start method."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.process import Launcher, WorkerContext, WorkerProcess

CONTEXTS = ("fork", "forkserver", "spawn")
LONG = 60.0


@pytest.fixture(params=CONTEXTS)
def launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """One of each start method, quiet about what its workers print."""
    # The test runner's own threads are not what these tests are about.
    with Launcher(request.param, allow_unsafe_fork=True, relay_output=False) as launcher:
        yield launcher
    gc.collect()  # the tracebacks of caught exceptions hold workers, which hold the zygote


def start(launcher: Launcher, target: Callable[..., Any], *arguments: Any) -> WorkerProcess:
    return launcher.start([(target, *arguments)])[0]


def answer(launcher: Launcher, target: Callable[[], Any]) -> str:
    """What `target()` returns in a worker, as text."""
    worker = start(launcher, lambda context: context.send(str(target()).encode()))
    reply = worker.recv(LONG)
    assert worker.join(LONG)
    assert reply is not None
    return reply.decode()


def test_a_worker_talks_with_its_parent_until_that_closes(launcher: Launcher) -> None:
    def echo(context: WorkerContext) -> None:
        while (message := context.recv()) is not None:
            context.send(message.upper())

    worker = start(launcher, echo)
    worker.send(b"hello")
    assert worker.recv(LONG) == b"HELLO"
    large = os.urandom(3_000_000).hex().encode()
    worker.send(large)
    assert worker.recv(LONG) == large.upper()
    assert worker.is_alive and worker.exitcode is None


def test_a_worker_knows_itself_and_its_arguments(launcher: Launcher) -> None:
    def tell(context: WorkerContext, *arguments: Any) -> None:
        context.send(repr((context.name, context.index, arguments)).encode())

    workers = launcher.start([(tell, i, {"a": [i]}) for i in range(3)])
    for i, worker in enumerate(workers):
        assert worker.recv(LONG) == repr((f"worker {i}", i, (i, {"a": [i]}))).encode()
        assert worker.name == f"worker {i}" and worker.pid != os.getpid()


def test_workers_are_called_as_their_starter_says(launcher: Launcher) -> None:
    def tell(context: WorkerContext) -> None:
        context.send(repr((context.name, context.index)).encode())

    for worker, number in zip(launcher.start([(tell,)] * 2, "model server", [3, 5]), (3, 5), strict=True):
        assert worker.recv(LONG) == repr((f"model server {number}", number)).encode()
        assert worker.name == f"model server {number}"


@pytest.mark.parametrize(
    ("end", "exitcode"),
    [
        (lambda context: "anything", 0),
        (lambda context: sys.exit(3), 3),
        (lambda context: sys.exit(), 0),
        (lambda context: sys.exit("with a word"), 1),
        (lambda context: os._exit(9), 9),
        (lambda context: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
        (lambda context: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
    ],
    ids=["return", "exit 3", "exit", "exit text", "_exit 9", "SIGTERM", "SIGKILL"],
)
def test_exit_codes(launcher: Launcher, end: Callable[..., Any], exitcode: int) -> None:
    worker = start(launcher, end)
    assert worker.join(LONG)
    assert worker.exitcode == exitcode and not worker.is_alive


def test_an_exception_is_raised_in_the_parent_with_the_workers_traceback(launcher: Launcher) -> None:
    def deep_inside(context: WorkerContext) -> None:
        {}["a key that is not there"]

    worker = start(launcher, deep_inside)
    with pytest.raises(KeyError, match="a key that is not there") as caught:
        worker.recv(LONG)
    assert "deep_inside" in str(caught.value.__cause__)
    assert worker.join(LONG) and worker.exitcode == 1


def test_an_exception_that_cannot_travel_is_told_as_text(launcher: Launcher) -> None:
    class Busy(Exception):
        def __str__(self) -> str:
            return "words"

    def fail(context: WorkerContext) -> None:
        raise Busy(threading.Lock())

    with pytest.raises(shoal.RemoteError, match="Busy: words"):
        start(launcher, fail).recv(LONG)


def test_worker_died_says_all_that_is_known(launcher: Launcher) -> None:
    def die(context: WorkerContext) -> None:
        print("my last words", flush=True)
        faulthandler.disable()  # pytest's, which a fork inherits: its report would stand among the tests' progress
        os.kill(os.getpid(), signal.SIGSEGV)

    worker = start(launcher, die)
    assert worker.join(LONG)
    with pytest.raises(shoal.WorkerDied, match="SIGSEGV") as caught:
        worker.raise_died()
    died = caught.value
    assert (died.worker, died.index, died.pid, died.exitcode) == ("worker 0", 0, worker.pid, -signal.SIGSEGV)
    assert "my last words" in died.log_tail and isinstance(died, RuntimeError)


@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_a_crash_in_native_code_leaves_the_python_stack_in_the_log(context: str) -> None:
    def crash_in_native_code(context: WorkerContext) -> None:
        ctypes.string_at(0)

    with Launcher(context, relay_output=False) as launcher:
        worker = start(launcher, crash_in_native_code)
        assert worker.join(LONG) and worker.exitcode == -signal.SIGSEGV
    assert any("crash_in_native_code" in line for line in worker.log_tail)


def test_the_last_words_of_a_killed_worker_are_kept(launcher: Launcher) -> None:
    def talk_and_die(context: WorkerContext) -> None:
        print("said before the end")  # no flush
        os.kill(os.getpid(), signal.SIGKILL)

    worker = start(launcher, talk_and_die)
    assert worker.join(LONG) and worker.log_tail == ["said before the end"]


def test_what_is_printed_is_kept_without_a_flush(launcher: Launcher) -> None:
    def talk(context: WorkerContext) -> None:
        print("to stdout")
        print("to stderr", file=sys.stderr)
        os.write(1, b"around Python\n")

    worker = start(launcher, talk)
    assert worker.join(LONG)
    assert sorted(worker.log_tail) == ["around Python", "to stderr", "to stdout"]


def test_a_forked_worker_does_not_write_the_parents_words_again(capfd: pytest.CaptureFixture[str]) -> None:
    with Launcher("fork", allow_unsafe_fork=True) as launcher:
        print("once", end="")  # still in the buffer when the worker is forked
        assert start(launcher, lambda context: print("from the worker")).join(LONG)
    sys.stdout.flush()
    assert capfd.readouterr().out.count("once") == 1


def test_a_worker_that_is_dropped_is_killed(launcher: Launcher) -> None:
    worker = start(launcher, lambda context: context.recv())
    pid = worker.pid
    assert Path(f"/proc/{pid}").exists()
    del worker
    assert not Path(f"/proc/{pid}").exists()


def test_a_wait_for_a_silent_worker_ends_at_its_deadline(launcher: Launcher) -> None:
    worker = start(launcher, lambda context: time.sleep(3600))
    with pytest.raises(TimeoutError, match="worker 0"):
        worker.recv(0.01)
    assert worker.join(0.01) is False
    with pytest.raises(TimeoutError):
        for _ in range(100_000):
            worker.send(b"x" * 60_000, 0.01)


def test_sending_to_a_worker_that_is_gone_is_a_broken_pipe(launcher: Launcher) -> None:
    worker = start(launcher, lambda context: None)
    assert worker.join(LONG)
    with pytest.raises(BrokenPipeError):
        worker.send(b"anybody?")
    assert worker.recv(LONG) is None


def test_the_first_thing_a_worker_sees_is_the_parents_interpreter(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # All of it changes after the zygote has started.
    monkeypatch.setattr(sys, "argv", ["program.py", "--flag"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_TEST_LATE", "set late")
    (tmp_path / "late_module.py").write_text("value = 'imported late'")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="late filter")

        def look() -> Any:
            import late_module

            matching = [f for f in warnings.filters if f[1] is not None and f[1].pattern == "late filter"]
            return sys.argv, os.getcwd(), os.environ.get("SHOAL_TEST_LATE"), late_module.value, len(matching)

        seen = answer(launcher, look)
    assert seen == str((["program.py", "--flag"], str(tmp_path), "set late", "imported late", 1))


def test_a_variable_that_is_removed_late_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_TEST_LATE", "x")
    with Launcher("forkserver") as launcher:
        assert answer(launcher, lambda: os.environ.get("SHOAL_TEST_LATE")) == "x"
        monkeypatch.delenv("SHOAL_TEST_LATE")
        assert answer(launcher, lambda: os.environ.get("SHOAL_TEST_LATE")) == "None"


@pytest.mark.parametrize("context", CONTEXTS)
def test_launchers_variables_and_gpus_do_not_reach_workers(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def variables() -> list[str | None]:
        names = ("OMPI_COMM_WORLD_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SHOAL_TEST_SET")
        return [os.environ.get(name) for name in names]

    with Launcher(context, threads=2, env={"SHOAL_TEST_SET": "yes"}, allow_unsafe_fork=True) as launcher:
        monkeypatch.setenv("WORLD_SIZE", "8")  # late ones neither
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert answer(launcher, variables) == str([None, None, "", "2", "yes"])


def test_workers_ignore_ctrl_c(launcher: Launcher) -> None:
    def echo(context: WorkerContext) -> None:
        while (message := context.recv()) is not None:
            context.send(message)

    worker = start(launcher, echo)
    worker.send(b"up")
    assert worker.recv(LONG) == b"up"
    worker.kill(signal.SIGINT)
    worker.send(b"still up")
    assert worker.recv(LONG) == b"still up"
    assert not worker.log_tail


def test_a_worker_may_start_processes(launcher: Launcher) -> None:
    import subprocess

    command = [sys.executable, "-c", "print('nested')"]
    assert answer(launcher, lambda: subprocess.run(command, capture_output=True, text=True).stdout.strip()) == "nested"


def test_nothing_stays_open(launcher: Launcher) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    assert start(launcher, lambda context: 0).join(LONG)
    before = count()
    for _ in range(3):
        workers = launcher.start([(lambda context: 0,)] * 2)
        assert all(worker.join(LONG) for worker in workers)
        del workers
    deadline = time.monotonic() + LONG
    while count() > before and time.monotonic() < deadline:  # the supervisor closes after it has told of the end
        time.sleep(0.01)
    assert count() <= before  # fewer where the first worker's were not closed yet
