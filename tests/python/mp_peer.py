"""Another process of this one's family, for tests of what crosses: it runs functions on what it is sent."""

from __future__ import annotations

import contextlib
import multiprocessing
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from shoal._core import ipc
from shoal.multiprocessing import reduction


def _write(file: BinaryIO, obj: Any) -> list:
    data, blocks = reduction.dumps(obj)
    file.write(struct.pack("<Q", len(data)) + data)
    file.flush()
    return blocks


def _read(file: BinaryIO) -> Any:
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    return reduction.loads(file.read(struct.unpack("<Q", head)[0]))


class Peer:
    """`peer(function, *arguments)` is what the function returns there; its exceptions are raised here."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(ipc.fd()), multiprocessing.current_process().authkey.hex()],
            pass_fds=[ipc.fd()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        held = _write(self.process.stdin, (function, arguments))
        outcome, result = _read(self.process.stdout)
        del held
        if outcome == "raised":
            raise result
        return result

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) in (0, -9)


@contextlib.contextmanager
def peer() -> Iterator[Peer]:
    made = Peer()
    try:
        yield made
    finally:
        made.close()


def _serve() -> None:
    ipc.attach(int(sys.argv[1]))  # takes the descriptor over
    multiprocessing.current_process().authkey = bytes.fromhex(sys.argv[2])
    sys.path.insert(0, str(Path(__file__).parent))
    held = None
    while True:
        try:
            function, arguments = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            outcome = ("returned", function(*arguments))
        except Exception as error:
            outcome = ("raised", error)
        del function, arguments
        held = _write(sys.stdout.buffer, outcome)  # until the answer has been loaded, which the next call tells
        del outcome
    del held


if __name__ == "__main__":
    _serve()
