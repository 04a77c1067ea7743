"""A contestant's process, seen from the suite."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shoal.bench import parking
from shoal.bench.roster import PACKAGES, Contestant, interpreter, needs, peers_folder

__all__ = ["ContestantFailed", "Process"]

PROGRAM = Path(__file__).with_name("contestant.py")
START_TIMEOUT = 300.0


class ContestantFailed(Exception):
    """A contestant ended or did not answer; the text is the last line that it wrote to stderr."""


# A group of its own in this session: the kernel lets what is stopped in it go on, and hangs it up, when this process dies.
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


class Process:
    """Starts a contestant, waits until its environments stand, and stops all of its processes until they are measured. A
    context manager: leaving it ends the process.

    Attributes:
        versions: what the contestant is made of, by package.
        settings: what it tried out and found the fastest.
    """

    def __init__(self, contestant: Contestant, workload: str, num_envs: int, num_workers: int) -> None:
        peer = needs(contestant, workload)
        python = interpreter(peer)
        if python is None:
            raise ContestantFailed(f"there is no virtual environment {peer} in {peers_folder()}")
        self._errors = tempfile.TemporaryFile()
        self._scratch = tempfile.TemporaryDirectory(prefix="shoal-bench-")  # some write where they are imported
        environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
        environment.pop("PYTHONPATH", None)
        if contestant.peer is None:
            environment["PYTHONPATH"] = str(PACKAGES)
        self._process = subprocess.Popen(
            [python, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=self._scratch.name,
            **OWN_GROUP,
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        self._closed = False
        task = {
            "adapter": contestant.adapter,
            "mode": contestant.mode,
            "workload": workload,
            "num_envs": num_envs,
            "num_workers": num_workers,
        }
        try:
            stands = self._ask(json.dumps(task), START_TIMEOUT)
            self._stop()
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = stands["versions"]
        self.settings: dict[str, Any] = stands["settings"]

    def measure(self, seconds: float) -> float:
        """Steps per second over a window of `seconds`. Its processes run for no longer."""
        parking.resume(self.pid)
        answer = self._ask(str(seconds), 60 + 10 * seconds)
        self._stop()
        return float(answer["steps"] / answer["seconds"])

    @property
    def pid(self) -> int:
        """Of the process, and of the group that all of its own processes are in."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process and all that it started. A second time does nothing."""
        if self._closed:
            return
        self._closed = True
        assert self._process.stdin is not None and self._process.stdout is not None
        parking.resume(self.pid)
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._ended_within(10)
        # Until it is waited for, its id belongs to it, and so does the group of that id.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._pidfd)
        self._process.stdout.close()
        self._errors.close()
        self._scratch.cleanup()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        try:
            parking.stop(self.pid)
        except TimeoutError as error:
            raise ContestantFailed(str(error)) from None

    def _ask(self, line: str, timeout: float) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ContestantFailed(self._last_words()) from None
        answer = self._read_line(self._process.stdout.fileno(), timeout)
        if not answer:
            raise ContestantFailed(self._last_words())
        said: dict[str, Any] = json.loads(answer)
        return said

    def _read_line(self, descriptor: int, timeout: float) -> bytes:
        """One line, without its end; empty at end of input. A contestant answers each question with exactly one line."""
        deadline = time.monotonic() + timeout
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ContestantFailed(f"no answer within {timeout:.0f} s")
            piece = os.read(descriptor, 4096)
            if not piece:
                return b""
            line += piece
        return line[:-1]

    def _ended_within(self, seconds: float) -> bool:
        return bool(select.select([self._pidfd], [], [], seconds)[0])

    def _last_words(self) -> str:
        if not self._ended_within(10):
            return "closed its output and runs on"
        self._errors.seek(0)
        lines = [text for text in self._errors.read().decode(errors="replace").splitlines() if text.strip()]
        return lines[-1] if lines else "ended without a word"
