"""What tests of `shoal stat` look at, and how."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from shoal.stat import snapshot

__all__ = ["BOUND", "Built", "Failing", "Stat", "Waiting", "mine", "program", "until", "wait_for"]

BOUND = 60.0
"""Seconds in which what is awaited comes."""

Stat = Callable[..., tuple[int, str, str]]
"""The fixture `stat`."""


class Waiting(gymnasium.Env):
    """Its steps wait until a file is there."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, file: str) -> None:
        self.file = file

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while not os.path.exists(self.file):
            time.sleep(0.01)
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Failing(Waiting):
    """From a step of its life on it raises, unless its file is there."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps >= 300 and not os.path.exists(self.file):
            raise ValueError("the licence has expired\nask somebody")
        return np.zeros(2, np.float32), 1.0, self.steps % 10 == 0, False, {}


class Built(Waiting):
    """It waits while it is made."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.step(0)


def wait_for(file: str) -> None:
    while not os.path.exists(file):
        time.sleep(0.01)


def mine(kind: str, pid: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """What is seen of a process: this one, unless told otherwise."""
    return [each for each in snapshot(**more)[kind] if each["pid"] == (pid or os.getpid())]


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + BOUND
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return found


class program:  # reads as what it is
    """A Python program that has run `code` and waits for its end."""

    def __init__(self, code: str) -> None:
        head = (
            f"import sys; sys.path[:0] = {[path for path in sys.path if path]!r}\nimport os, time, shoal\nkept = []\n"
        )
        body = code if "\n" in code else f"kept.append({code})"
        self._code = f"{head}{body}\nprint('ready', flush=True)\nsys.stdin.read()\n"

    def __enter__(self) -> subprocess.Popen[str]:
        self._made = subprocess.Popen(
            [sys.executable, "-c", self._code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if "print(child" not in self._code:
            assert self._made.stdout is not None
            assert self._made.stdout.readline() == "ready\n"
        return self._made

    def __exit__(self, *_: object) -> None:
        self._made.kill()
        self._made.communicate()
