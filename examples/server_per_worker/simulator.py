"""A simulator behind a socket: it listens on a port and moves a point on a line, one request a line of JSON.

Stands for the game or robot simulator that is started once for each environment, on a port of its own.
"""

from __future__ import annotations

import json
import socket
import threading
from typing import Any


class Simulator:
    """Serves one client at a time, from a thread, until close()."""

    def __init__(self, port: int, friction: float) -> None:
        self._friction = friction
        self._position = 0.0
        # Without SO_REUSEADDR, as many simulators are: a port that lingers would refuse it.
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection, connection.makefile("rw") as stream:
                for line in stream:
                    stream.write(json.dumps(self._answer(json.loads(line))) + "\n")
                    stream.flush()

    def _answer(self, request: dict[str, Any]) -> float:
        if "reset" in request:
            self._position = 0.0
        else:
            self._position += request["move"] * (1.0 - self._friction)
        return self._position
