import builtins
from collections.abc import Callable, Sequence
from typing import Any

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

    def recv_with_fds(self) -> tuple[bytes, list[int]] | None:
        """
        Bytes and descriptors from the parent, which are the caller's then; None when it wants this worker to end.
        """

    def close(self) -> None: ...
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

    @property
    def ended_with(self) -> str | None:
        """
        In words: 'exit code 1', 'signal 9 (SIGKILL)', 'its zygote (pid 7), which …'; None while it runs.
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
    def plain(self) -> bool: ...
    @property
    def preload(self) -> list[str]: ...
    @property
    def bootstrap(self) -> bytes: ...
    def run(self, run: Callable[..., Any]) -> int: ...
    def fail(self, type: str, message: str, traceback: str, exception: bytes) -> int: ...

class Zygotes:
    """
    The zygotes of the launchers that are given this; see src/shoal/process/zygote/zygotes.h.
    """

    def __init__(self, idle: int, seconds: float) -> None: ...
    def set_limits(self, idle: int, seconds: float) -> None: ...
    @property
    def limits(self) -> tuple[int, float]:
        """How many idle ones stay, and for how many seconds."""

    def list(self) -> builtins.list[Any]:
        """Those that live, a dict each: see shoal.process.zygotes()."""

class Launcher:
    @property
    def method(self) -> str: ...
    @property
    def zygote_pid(self) -> int: ...
    def begin(self, preload: Sequence[str], bootstrap: bytes) -> None: ...
    def start(self, payloads: Sequence[bytes], name: str, numbers: Sequence[int]) -> list[WorkerProcess]:
        """One worker for each payload, called "NAME NUMBER"."""

    def start_process(self, name: str, payload: bytes, fds: Sequence[int], sentinel: int) -> WorkerProcess:
        """
        Starts one worker of a plain launcher, which runs shoal.multiprocessing's `payload` with these descriptors; `sentinel` is an eventfd, open for as long as the worker is held, that becomes readable when it has ended.
        """

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
    ahead: bool,
    plain: bool = False,
    zygotes: Zygotes,
    bootstrap: bytes,
    run: Callable[..., Any],
) -> Launcher: ...
def create_native_launcher(
    *, method: str, environment: Sequence[tuple[str, str]], threads: int, hide_gpu: bool, start_timeout: float
) -> Launcher:
    """One whose workers are shoal-worker, a program without Python."""

def forbid_new_processes() -> None:
    """From here on the kernel refuses this process every new one, for good."""

def new_processes_forbidden() -> bool: ...
def fork_hazards(threads: bool = True) -> list[str]:
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

def interrupt_after_parent() -> None:
    """
    From here on the death of this process's parent is a Ctrl-C, too, at once.
    """

def end_after_parent(parent: int) -> None:
    """
    The kernel ends this process some seconds after the process `parent`, its parent.
    """

def keep_freed_memory() -> None:
    """
    What this process frees stays its own: large arrays come and go without page faults.
    """

def install_stack_dump() -> int: ...
def stack_signal() -> int: ...
def gpu_in_use() -> str | None:
    """What shows that this process uses a GPU; None when it is free of GPUs."""

class Counter:
    """A whole number that all workers of a group and their parent add to."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def add(self, n: int = 1) -> int:
        """
        Adds n (which may be negative) at once for all; returns the new value, which no other add(1) of this counter returns.
        """

    def get(self) -> int: ...
    def set(self, value: int) -> None:
        """Forgets what was added before."""

    def __int__(self) -> int: ...
    def __repr__(self) -> str: ...

class SharedState:
    """What the workers of a group share with their parent."""

    @staticmethod
    def create(value_bytes: int = 65536) -> SharedState: ...
    def counter(self, name: str) -> Counter: ...
    def counters(self) -> list[tuple[str, int]]: ...
    def get_value(self, name: str) -> Any:
        """(bytes, version), or None."""

    def set_values(self, values: Sequence[tuple[str, bytes]], expected: int | None = None) -> bool:
        """
        All or none. With `expected`, only if the first one is of that version (0: not there).
        """

    def erase_value(self, name: str, expected: int | None = None) -> bool: ...
    def value_names(self) -> list[str]: ...
    def clear_values(self) -> None: ...

class PortLease:
    @property
    def port(self) -> int: ...
    @property
    def held(self) -> bool: ...
    def release(self) -> None: ...

class GpuLease:
    """
    The GPU that the fewest workers of the machine have, for one more of them.
    """

    def __init__(self, devices: Sequence[str]) -> None: ...
    @property
    def device(self) -> str: ...
    @property
    def held(self) -> bool: ...
    def release(self) -> None: ...

class Identity:
    """A worker; two that are equal are the same."""

    def __init__(
        self,
        *,
        index: int = 0,
        num_workers: int = 1,
        first_env: int = 0,
        num_envs: int = 0,
        shared_state: SharedState | None = None,
    ) -> None: ...
    @property
    def key(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
    @property
    def first_env(self) -> int: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def is_worker(self) -> bool: ...
    @property
    def env_index(self) -> Any: ...
    def enter(self, env: int) -> None: ...
    def leave(self) -> None: ...
    def seed(self, env: int) -> int | None: ...
    def set_seed(self, env: int, seed: int | None) -> None: ...
    @property
    def shared_state(self) -> SharedState: ...
    def lease_port(self, kind: str, first: int | None = None, last: int | None = None) -> PortLease: ...

class IdentityScope:
    """Code inside is that worker's, in this thread."""

    def __init__(self, identity: Identity, env: int = -1) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

def this_worker() -> Identity: ...
def this_worker_key() -> int:
    """Identity.key of this_worker(), without an object for it."""

def this_worker_env() -> int:
    """env_index of this_worker(), 0 where it has none."""

def become(identity: Identity | None) -> None:
    """From here on this process is that worker."""

def receive_welcome(context: WorkerContext) -> Identity | None:
    """Who this worker is; None when its parent is gone."""

def forbid_gpu() -> None:
    """
    From now on this process holds no GPU; who tries is remembered with the stack.
    """

def check_gpu() -> None:
    """
    RuntimeError where the process uses a GPU though it is forbidden, with the stacks of who tried.
    """
