from collections.abc import Callable, Sequence

class WorkerContext:
    """What a worker is given."""

    @property
    def name(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def first_env(self) -> int: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def hide_gpu(self) -> bool: ...
    @property
    def payload(self) -> bytes: ...
    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Sends bytes to the parent."""

    def recv(self, timeout: float | None = None) -> bytes | None:
        """Bytes from the parent; None when it wants this worker to end."""

class WorkerProcess:
    """
    A worker, seen from its parent. Deleting it kills the process if it still runs.
    """

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def is_alive(self) -> bool: ...
    @property
    def exitcode(self) -> int | None:
        """
        The exit code, or minus the number of the signal that killed it; None while it runs, or when unknown.
        """

    def join(self, timeout: float | None = None) -> bool:
        """Waits until it has ended; returns whether it has."""

    def kill(self, signal: int = 9) -> None: ...
    @property
    def log_tail(self) -> list[str]:
        """Its last lines of output."""

    def send(self, message: bytes, timeout: float | None = None) -> None: ...
    def recv(self, timeout: float | None = None) -> bytes | None:
        """
        Bytes from the worker; None when it has closed its end. Raises what the worker reports.
        """

    def raise_died(self) -> None:
        """Raises WorkerDied with all that is known about its end."""

class Program:
    """A fresh interpreter that a launcher started."""

    @staticmethod
    def attach() -> Program: ...
    @property
    def zygote(self) -> bool: ...
    @property
    def preload(self) -> list[str]: ...
    @property
    def bootstrap(self) -> bytes: ...
    def run(self, run: Callable) -> int: ...
    def fail(self, type: str, message: str, traceback: str, exception: bytes) -> int: ...

class Launcher:
    @property
    def method(self) -> str: ...
    @property
    def zygote_pid(self) -> int: ...
    def start(self, payloads: Sequence[bytes]) -> list[WorkerProcess]: ...

def create_launcher(
    *,
    method: str,
    interpreter: Sequence[str],
    preload: Sequence[str],
    environment: Sequence[tuple[str, str]],
    threads: int,
    hide_gpu: bool,
    start_timeout: float,
    allow_unsafe_fork: bool,
    relay_output: bool,
    bootstrap: bytes,
    run: Callable,
) -> Launcher: ...
def fork_hazards() -> list[str]:
    """
    Why forking this process is unsafe, one sentence each; empty when nothing is known against it.
    """

def foreign_threads() -> list[str]:
    """
    The threads that are neither the caller's nor Shoal's, "id (name)" each.
    """

def is_launcher_variable(name: str) -> bool:
    """
    Whether the variable tells a process its place in a group (torchrun, MPI, Slurm).
    """

def worker_variables(threads: int, hide_gpu: bool, environment: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The variables that workers get on top of their caller's."""

def gpu_in_use() -> str | None:
    """What shows that this process uses a GPU; None when it is free of GPUs."""
