"""Log lines of the C++ parts in Python's logging."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import Any

import gymnasium
import pytest

import shoal
from log_records import Records
from shoal import _core

BOUND = 60.0
"""Seconds in which what is awaited comes."""


def program(text: str, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "SHOAL_LOG"} | env
    return subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, timeout=BOUND)


def test_a_line_is_a_record_of_its_layer(records: Records) -> None:
    _core.log.write("warning", "serve", "a line\nof two")
    record = records.next()
    assert (record.name, record.levelname, record.getMessage()) == ("shoal.serve", "WARNING", "a line\nof two")
    assert record.process == os.getpid() and record.processName == "MainProcess"


def test_what_is_below_the_level_is_left_out(records: Records) -> None:
    logger = logging.getLogger("shoal.serve")
    logger.setLevel(logging.ERROR)
    try:
        _core.log.write("warning", "serve", "quiet")
        _core.log.write("error", "serve", "loud")
        assert records.next().getMessage() == "loud"
        assert len(records.records) == 1
    finally:
        logger.setLevel(logging.NOTSET)


def test_lines_of_a_process_are_told_from_its_output(records: Records, capfd: pytest.CaptureFixture[str]) -> None:
    class Saying(gymnasium.Wrapper):
        def reset(self, **arguments: Any) -> Any:
            _core.log.write("error", "vector", "said by a worker\nin two lines")
            print("printed by a worker", flush=True)
            return super().reset(**arguments)

    with shoal.make_vec("CartPole-v1", 1, num_workers=1, wrappers=[Saying]) as envs:
        envs.reset(seed=0)
        first = records.next()
        records.next()
        pid = envs.health()[0]["pid"]
    texts = [record.getMessage() for record in records.records]
    assert texts == ["said by a worker", "in two lines"]
    assert (first.name, first.levelname, first.processName, first.process) == ("shoal.vector", "ERROR", "worker 0", pid)
    told = capfd.readouterr()
    assert "[worker 0] printed by a worker" in told.out and "said by a worker" not in told.err


def test_who_logs_does_not_wait_for_python(records: Records) -> None:
    """A handler that takes the GIL's time, and one that logs again, hold nobody up."""

    class Echo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "first":
                _core.log.write("warning", "serve", "second")

    echo = Echo()
    logging.getLogger("shoal").addHandler(echo)
    try:
        _core.log.write("warning", "serve", "first")
        deadline = time.monotonic() + BOUND
        while [record.getMessage() for record in records.records] != ["first", "second"]:
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        logging.getLogger("shoal").removeHandler(echo)


def test_without_a_handler_it_goes_to_stderr() -> None:
    told = program("from shoal import _core; _core.log.write('warning', 'serve', 'a line')")
    assert "[warning] a line" in told.stderr and "[shoal.serve " in told.stderr and told.returncode == 0


def test_what_waits_at_exit_is_delivered_in_order() -> None:
    told = program(
        "import logging, sys, time\n"
        "class Slow(logging.StreamHandler):\n"
        "    def emit(self, record):\n"
        "        if record.getMessage() == 'line 2': time.sleep(0.2)\n"
        "        super().emit(record)\n"
        "logging.basicConfig(handlers=[Slow(sys.stdout)], format='%(name)s %(message)s')\n"
        "from shoal import _core\n"
        "for i in range(100): _core.log.write('warning', 'serve', f'line {i}')"
    )
    assert told.stdout.splitlines() == [f"shoal.serve line {i}" for i in range(100)]
    assert told.stderr == "" and told.returncode == 0


def test_stderr_has_them_where_it_is_asked_for() -> None:
    told = program(
        "import logging, sys; logging.basicConfig(stream=sys.stdout, format='%(message)s', level=1)\n"
        "from shoal import _core; _core.log.write('debug', 'serve', 'a line')",
        SHOAL_LOG="debug",
    )
    assert told.stdout == "a line\n" and told.stderr.count("[debug] a line") == 1


def test_stderr_has_them_once_where_nothing_else_takes_them() -> None:
    for env in ({}, {"SHOAL_LOG": "info"}):
        told = program("from shoal import _core; _core.log.write('warning', 'serve', 'a line')", **env)
        assert told.stderr.count("[warning] a line") == 1


def test_lines_of_a_worker_are_on_stderr_once() -> None:
    said = "from shoal import _core; _core.log.write('warning', 'serve', 'a line')"
    told = program(
        f"import shoal.multiprocessing as mp\nwith mp.Pool(1) as pool: pool.apply(exec, ({said!r},))", SHOAL_LOG="info"
    )
    assert told.stderr.count("[warning] a line") == 1


def test_a_worker_that_is_replaced_is_a_line() -> None:
    told = program(
        "import logging, os, sys; logging.basicConfig(stream=sys.stdout, format='%(name)s %(levelname)s %(message)s')\n"
        "logging.getLogger('shoal').setLevel(logging.INFO)\n"
        "import shoal, shoal.multiprocessing as mp, sample_envs\n"
        "with shoal.make_vec(sample_envs.MortalEnv, 1, num_workers=1, on_fault='restart') as envs:\n"
        "    envs.reset(seed=0)\n"
        "    envs.step([2])\n"
        "with mp.Pool(1) as pool:\n"
        "    task = pool.apply_async(os.abort)\n"
        "    task.wait()\n"
        "    pool.apply(int)\n",
        SHOAL_LOG="info",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    first, second = (line for line in told.stdout.splitlines() if line.startswith("shoal."))
    assert first.startswith("shoal.vector INFO worker 0 ") and "SIGKILL" in first
    assert second.startswith("shoal.ipc INFO ") and second.endswith("; another takes its place") and "SIGABRT" in second


def test_a_forked_child_logs_its_own_lines() -> None:
    told = program(
        "import logging, os, sys; logging.basicConfig(stream=sys.stdout, format='%(process)d %(message)s')\n"
        "from shoal import _core\n"
        "if (pid := os.fork()) == 0:\n"
        "    _core.log.write('warning', 'serve', 'child')\n"
        "    sys.exit()\n"
        "os.waitpid(pid, 0)\n"
        "print(pid, 'child')"
    )
    first, second = told.stdout.splitlines()
    assert first == second and told.returncode == 0


def test_a_broken_handler_breaks_nothing() -> None:
    told = program(
        "import logging\n"
        "class Broken(logging.Handler):\n"
        "    def emit(self, record): raise RuntimeError('broken')\n"
        "logging.getLogger('shoal').addHandler(Broken())\n"
        "from shoal import _core; _core.log.write('warning', 'serve', 'a line')\n"
        "print('goes on')"
    )
    assert told.stdout == "goes on\n" and "broken" in told.stderr and "a line" in told.stderr and told.returncode == 0
