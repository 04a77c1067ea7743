"""The model service."""

import builtins
from collections.abc import Sequence
from typing import Any

class Batch:
    """Rows that a model is to answer together."""

    @property
    def model(self) -> int: ...
    @property
    def pinned(self) -> int: ...
    @property
    def structure(self) -> bytes: ...
    @property
    def answer_structure(self) -> bytes:
        """
        That of the first answer to such rows, which all others are put together by.
        """

    @property
    def rows(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def envs(self) -> list[Any]:
        """(client, environment) of each row."""

    @property
    def resets(self) -> list[Any]: ...
    def inputs(self, rows: int) -> list[Any]:
        """
        Arrays over the rows in shared memory, padded to `rows`; theirs until finish().
        """

    def one_input(self, row: int) -> list[Any]:
        """The same of one row."""

    def reply(self, arrays: list[Any], version: int, first: int, count: int) -> None: ...
    def fail(self, row: int, message: str, traceback: str, version: int) -> None: ...
    def finish(self, padded_rows: int = 0) -> None: ...

class Probe:
    """Rows of a new kind, with one of them."""

    @property
    def model(self) -> int: ...
    @property
    def pinned(self) -> int: ...
    @property
    def structure(self) -> bytes: ...
    def inputs(self) -> list[Any]:
        """The example as a batch of one row."""

    def open(self, outputs: list[Any], structure: bytes) -> None:
        """`outputs` are the model's arrays for the example."""

    def refuse(self, message: str, traceback: str = "", model_error: bool = True) -> None: ...

class Command:
    """What the service's owner asks of a server."""

    @property
    def bytes(self) -> builtins.bytes: ...
    def answer(self, bytes: builtins.bytes) -> None: ...

class Gone:
    """A client has ended; client 0: the service has."""

    @property
    def client(self) -> int: ...

class Server:
    """One instance of a model service."""

    def __init__(
        self, address: str, instance: int, models: Sequence[tuple[str, int, float]], max_queues: int = 64
    ) -> None: ...
    def next(self, timeout: float | None = None) -> Any:
        """
        What is to be done next: a Batch, Probe, Command or Gone; None after `timeout` seconds.
        """

    def set_version(self, model: int, version: int, is_update: bool) -> None: ...

class Frontend:
    """Where the clients of a model service arrive."""

    def __init__(self) -> None: ...
    @property
    def address(self) -> str: ...
    def wait_ready(self, instance: int, generation: int, timeout: float | None = None) -> bool: ...
    def wait_gone(self, instance: int) -> None:
        """Returns when that server has ended; not interrupted."""

    def generation(self, instance: int) -> int:
        """How many servers it has had."""

    def hold_clients(self, instance: int) -> None:
        """Its servers get commands, but no clients, until let_clients_in()."""

    def let_clients_in(self, instance: int) -> None: ...
    def command(self, instance: int, bytes: bytes, timeout: float | None = None, topic: int = 0) -> Any:
        """
        The server's answer; None when it has not come in time. Of a topic that is not 0, whose answers nobody waits for, a busy server keeps the newest commands.
        """

    def statistics(self, instances: int) -> dict[Any, Any]:
        """Of every model, by name, summed over the instances; times in seconds."""

    def close(self, notice: str) -> None: ...

def observe(address: str, timeout: float | None = None) -> tuple[Any, ...]:
    """
    (instances, running ones, seconds since the start, statistics, process ids of the last server of each instance, restarts) of a service of this machine.
    """

class Future:
    """Rows that a model service was asked about."""

    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the replies; returns whether they are there."""

    def watch(self) -> int:
        """
        -1: the replies are there; else a descriptor that is readable when it is worth a look.
        """

    def cancel(self) -> None: ...
    def take(self, batched: bool) -> tuple[Any, ...]:
        """(arrays, structure, version), once, after wait()."""

class Client:
    """A connection to a model service."""

    def __init__(self, address: str, timeout: float | None = None) -> None: ...
    @property
    def alive(self) -> bool:
        """Whether its server still runs; False in a child of its process."""

    @property
    def models(self) -> list[str]: ...
    def model(self, name: str) -> int:
        """Its number. Raises ValueError naming those there are."""

    def submit(
        self,
        arrays: list[Any],
        model: int,
        structure: bytes,
        batched: bool,
        pinned: int = 0,
        env: int = 0,
        reset: bool = False,
        wait_for_room: bool = True,
        timeout: float | None = None,
    ) -> Future: ...

class Listener:
    """Has a service of this host answer other hosts."""

    def __init__(
        self,
        frontend: str,
        address: str,
        models: Sequence[str],
        max_batch: int,
        max_delay: float,
        instances: int,
        restarts: bool,
        timeout: float | None = None,
        secret: str | None = None,
    ) -> None: ...
    def start(self) -> None:
        """Lets them in."""

    @property
    def port(self) -> int: ...
    def close(self, why: str) -> None:
        """Idempotent."""

class Relay:
    """A server of a local service whose models are elsewhere."""

    def __init__(
        self, frontend: Frontend, instance: int, address: str, secret: str | None = None, timeout: float = 10.0
    ) -> None: ...
    @property
    def models(self) -> list[str]: ...
    @property
    def instances(self) -> int:
        """Of the distant service."""

    @property
    def restarts(self) -> bool: ...
    @property
    def timeout(self) -> float | None:
        """Of requests that name none."""

    @property
    def end_reason(self) -> str:
        """Why it takes no clients any more; empty while it does."""

    def close(self) -> None:
        """Idempotent."""
