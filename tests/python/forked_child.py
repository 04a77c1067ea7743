"""What a forked child of the test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any


def in_child(function: Callable[[], Any]) -> str:
    """What a forked child says: "done", or the error that `function` raised there."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            signal.alarm(20)  # one that hangs says nothing
            try:
                function()
                said = "done"
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(writer, said.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as end:
        said = end.read()
    os.waitpid(pid, 0)
    return said
