"""Runs CPython's own tests of multiprocessing with Shoal's in its place.

    python tests/conformance/cpython_multiprocessing.py                       # fork, forkserver, spawn
    python tests/conformance/cpython_multiprocessing.py spawn -k TestQueue    # one method, what matches

They come from the `test` package of the interpreter that runs this, which some distributions leave out. A test that hangs, or
takes its process with it, is a failure of that test alone: the others go on in a new process.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
METHODS = ("fork", "forkserver", "spawn")

CANNOT_APPLY = {
    "TestStartMethod.test_get_all": "the default comes first, as documented, and is forkserver: the list has CPython 3.14's order",
    "test_queue_feeder_donot_stop_onexc": "put() raises what keeps an object from being pickled: there is no feeder",
    "test_queue_feeder_on_queue_feeder_error": "the same",
    "test_mixed_startmethod": "wants an error where queues of one start method go to processes of another; ours may",
    "test_unpickleable_result": "its unpicklable result is a lambda, which is a result like any other",
    "TestIgnoreEINTR.test_ignore": "interrupts a send of 4 MiB that waits; a pipe takes 64 MiB before it does",
    "test_missing_fd_transfer": "writes to a pipe's descriptor, which is no way into ours",
    "test_resource_tracker_sigkill": "wants semaphores to tell the tracker their names; ours have none",
}
"""Tests that are not run, by the end of their name, each with its reason."""


# --- in a process that runs tests ---------------------------------------------------------------------------------------


class Reporter(unittest.TestResult):
    """Tells each test's beginning and end on a descriptor."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.out = os.fdopen(fd, "w", buffering=1)

    def say(self, kind: str, test: Any, text: str = "") -> None:
        self.out.write(json.dumps([kind, test.id(), text]) + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.say("start", test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.say("stop", test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.say("passed", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.say("skipped", test, reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.say("failed", test, self._exc_info_to_string(err, test))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.say("failed", test, self._exc_info_to_string(err, test))

    def addSubTest(self, test: unittest.TestCase, subtest: Any, err: Any) -> None:
        if err is not None:
            self.say("failed", test, self._exc_info_to_string(err, test))

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.say("passed", test)


def tests_of(suite: Any) -> list[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        return [suite]
    return [test for part in suite for test in tests_of(part)]


def run_here(module: str, names: Path | None, fd: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    faulthandler.enable()  # SIGABRT of a hanging test; no timer of its own: that is a thread, beside which nobody forks
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    tests = tests_of(suite)
    if names is None:
        with os.fdopen(fd, "w") as out:
            json.dump([test.id() for test in tests], out)
        return
    wanted = set(names.read_text().split("\n"))
    unittest.TestSuite(test for test in tests if test.id() in wanted).run(Reporter(fd))


# --- in the process that was started by hand ----------------------------------------------------------------------------


def start(module: str, names: Path | None) -> tuple[subprocess.Popen[bytes], int]:
    reader, writer = os.pipe()
    path = [str(HERE / "shims"), str(HERE.parents[1] / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, str(HERE / "cpython_multiprocessing.py"), "--run", module, "--fd", str(writer)]
    command += ["--names", str(names)] if names else []
    process = subprocess.Popen(
        command,
        pass_fds=[writer],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(writer)
    return process, reader


def run_method(method: str, pattern: str, timeout: float, folder: Path, verbose: bool) -> Counter[str]:
    module = f"cpython_{method}"
    process, reader = start(module, None)
    with os.fdopen(reader) as file:
        listed = file.read()
    output = process.communicate()[0].decode(errors="replace")
    if not listed:
        raise SystemExit(f"{module} cannot be imported:\n{output}")
    left = [name for name in json.loads(listed) if pattern in name]
    if not left:
        raise SystemExit(
            f"{module} has no tests{f' whose names have {pattern!r} in them' if pattern else ''}:\n{output}"
        )
    counts: Counter[str] = Counter()
    for name in [name for name in left if reason_against(name)]:
        counts["does not apply"] += 1
        left.remove(name)
    names = folder / f"{method}.names"
    while left:
        names.write_text("\n".join(left))
        process, reader = start(module, names)
        left = follow(process, reader, left, counts, verbose, timeout)
    return counts


def reason_against(name: str) -> str:
    return next((reason for end, reason in CANNOT_APPLY.items() if f".{end}." in f".{name}."), "")


def lines_of(reader: int, process: subprocess.Popen[bytes], timeout: float) -> Iterator[str]:
    """What comes within `timeout` of what came before; otherwise the process is told to say where it is, and to end."""
    pending = b""
    with os.fdopen(reader, "rb", buffering=0) as file:
        while True:
            if not select.select([file], [], [], timeout)[0]:
                process.send_signal(signal.SIGABRT)
                return
            piece = file.read(65536)
            if not piece:
                return
            *whole, pending = (pending + piece).split(b"\n")
            yield from (line.decode() for line in whole)


def follow(
    process: subprocess.Popen[bytes],
    reader: int,
    left: list[str],
    counts: Counter[str],
    verbose: bool,
    timeout: float,
) -> list[str]:
    """Reports what the process says until it ends; returns the tests that it did not come to."""
    running, verdict, text, began = "", "", "", 0.0
    done: set[str] = set()
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    output = b""
    for line in lines_of(reader, process, timeout):
        with contextlib.suppress(BlockingIOError, TypeError):
            output = (output + (process.stdout.read() or b""))[-20_000:]
        kind, name, more = json.loads(line)
        if kind == "start":
            running, verdict, text, began = name, "", "", time.monotonic()
        elif kind == "stop":
            report(running, verdict or "passed", text, counts, verbose, time.monotonic() - began)
            done.add(running)
            running = ""
        elif kind == "failed" or not verdict:
            verdict, text = kind, text + more
            if not running:  # of a module's or a class's set-up
                report(name, kind, more, counts, verbose, 0.0)
    os.set_blocking(process.stdout.fileno(), True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5 if running else 60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    output += process.communicate()[0]
    if running:
        tail = output.decode(errors="replace")[-6000:]
        report(running, "hung or crashed", tail, counts, verbose, time.monotonic() - began)
        done.add(running)
    elif not done:
        print(f"=== {len(left)} tests were not run: their process ended before the next began, with exit code ", end="")
        print(f"{process.returncode}, from {left[0]} on\n{output.decode(errors='replace')[-4000:]}", flush=True)
        counts["not run"] += len(left)
        return []
    return [name for name in left if name not in done]


def report(name: str, verdict: str, text: str, counts: Counter[str], verbose: bool, seconds: float) -> None:
    counts[verdict] += 1
    if verdict not in ("passed", "skipped"):
        print(f"=== {name}: {verdict} ({seconds:.1f} s)\n{text}", flush=True)
    elif verbose:
        print(f"{name}: {verdict} ({seconds:.1f} s) {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("-k", dest="pattern", default="", help="tests whose names have this in them")
    parser.add_argument("-v", dest="verbose", action="store_true", help="name the tests that pass, too")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each test")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--names", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_here(arguments.run, arguments.names, arguments.fd)
        return 0
    if importlib.util.find_spec("test._test_multiprocessing") is None:
        print("skipped: this interpreter comes without its `test` package")
        return 0
    import tempfile

    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cpython-tests-") as folder:
        for method in arguments.methods:
            counts = run_method(method, arguments.pattern, arguments.timeout, Path(folder), arguments.verbose)
            print(f"{method}: {', '.join(f'{n} {what}' for what, n in counts.items())}", flush=True)
            total += counts
    return 1 if total["failed"] + total["hung or crashed"] + total["not run"] else 0


if __name__ == "__main__":
    sys.exit(main())
