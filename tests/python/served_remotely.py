"""A program with a model service that listens: the other host of the tests.

python served_remotely.py '{"listen": "127.0.0.1:0"}'
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from stopping import await_stopped

__all__ = ["Distant"]


class Distant:
    """That program, in a process group of its own.

    Attributes:
        listening: where its service is found.
        pid: of the program.
        server: process id of the service's server.
    """

    def __init__(self, command: list[str] | None = None, **arguments: Any) -> None:
        self.process = subprocess.Popen(
            [*(command or []), sys.executable, str(Path(__file__)), json.dumps({"listen": "127.0.0.1:0", **arguments})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.listening: str = told["listening"]
        self.pid: int = told["pid"]
        self.server: int = told["server"]

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)
        await_stopped(self.process.pid)

    def kill(self) -> None:
        """With -9; it, and what it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Distant:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def main() -> None:
    import shoal
    from served_models import MODELS, deadly

    arguments = json.loads(sys.argv[1])
    models = {**MODELS, "deadly": deadly}
    with shoal.ModelService(models, max_batch=8, **arguments) as service:
        server = int(service.model("pid")(0))
        print(json.dumps({"listening": service.listening, "pid": os.getpid(), "server": server}), flush=True)
        sys.stdin.read()  # until somebody closes it


if __name__ == "__main__":
    main()
