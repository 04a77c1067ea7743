"""Ctrl-C at a moment that a test chooses."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@contextlib.contextmanager
def interrupted_once_there(file: Path) -> Iterator[None]:
    """Ctrl-C in the block, as soon as there is a file; it is to raise KeyboardInterrupt."""

    left = threading.Event()

    def interrupt() -> None:
        while not file.exists():
            if left.wait(0.001):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        left.set()
        thread.join()


class Interrupted:
    """Of an object, whose method `name` has its effect, and then Ctrl-C comes, once."""

    def __init__(self, of: Any, name: str) -> None:
        self._of, self._name = of, name

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._of, name)
        if name != self._name:
            return method

        def interrupted(*args: Any) -> Any:
            self._name = ""
            method(*args)
            raise KeyboardInterrupt

        return interrupted
