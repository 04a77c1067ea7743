"""Other programs that compute while a contestant steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.bench import parking
from shoal.bench.process import OWN_GROUP

__all__ = ["Beside"]


class Beside:
    """So many processes that do nothing but compute. They are stopped but within `running()`. A context manager: leaving it ends
    them."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-S", "-E", "-c", "while True: pass"]
        self._programs: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                self._programs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, **OWN_GROUP))
            self._stop()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        return [program.pid for program in self._programs]

    @contextmanager
    def running(self) -> Iterator[None]:
        for pid in self.pids:
            parking.resume(pid)
        try:
            yield
        finally:
            self._stop()

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        self._programs.clear()

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        for pid in self.pids:
            parking.stop(pid)
