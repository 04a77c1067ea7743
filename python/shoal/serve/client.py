"""A model of a service, as those see it who ask it."""

from __future__ import annotations

import multiprocessing.context
import os
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn

from shoal import _core
from shoal.errors import ServiceDied
from shoal.ipc.sharing import Parcel
from shoal.reprs import never_raises
from shoal.serve.arguments import checked_version
from shoal.serve.structure import MAY_BE_BATCHED, NOT_BATCHED, WHETHER_BATCHED, answer_from, pack_arguments, refusal_of

__all__ = ["Directory", "Reply", "ServiceModel", "refuse_batch", "refuse_reset"]

RETRIES = 3
"""How often a call is made again whose server has died, where the service starts another."""


class _Connections(threading.local):
    """Those of one thread, by address."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.clients: dict[str, _core.serve.Client] = {}


_connections = _Connections()


def _client(address: str, timeout: float | None) -> _core.serve.Client:
    if _connections.pid != os.getpid():  # a forked child: they are its parent's
        _connections.pid, _connections.clients = os.getpid(), {}
    client = _connections.clients.get(address)
    if client is None:
        drop_ended()
        client = _connections.clients[address] = _core.serve.Client(address, timeout)
    return client


def drop_ended() -> None:
    """This thread's connections to servers that are no more."""
    if _connections.pid == os.getpid():
        _connections.clients = {address: client for address, client in _connections.clients.items() if client.alive}


class Directory:
    """Where a service's models are found; what travels to the workers.

    Attributes:
        address: of its frontend.
        names: of its models.
        restarts: whether it starts another server when one dies.
        timeout: seconds after which a request ends, where the caller sets none.
        batched: models whose rows may come in batches, as far as that has been asked.
    """

    def __init__(self, address: str, names: tuple[str, ...], restarts: bool, timeout: float | None) -> None:
        self.address = address
        self.names = names
        self.restarts = restarts
        self.timeout = timeout
        self.batched: set[str] = set()

    def find(self, name: str) -> ServiceModel:
        return ServiceModel(self, name)

    def __reduce__(self) -> Any:
        parcel = multiprocessing.context.get_spawning_popen()
        if isinstance(parcel, Parcel):  # who holds it starts workers with this pickle, and so keeps the service
            parcel._objects.append(self)
        return Directory, (self.address, self.names, self.restarts, self.timeout)

    def __deepcopy__(self, memo: Any) -> Directory:
        return self  # who has the copy of a model keeps the service, too


class Reply:
    """Rows that were submitted. One that is dropped unread is cancelled.

    Attributes:
        version: of the weights that answered; the oldest of them for a batch. None before result().
    """

    version: int | None = None

    def __init__(self, model: ServiceModel, future: _core.serve.Future, batched: bool) -> None:
        self._model = model
        self._future = future
        self._batched = batched
        self._kept: list[Any] = []  # the answer, where gather() has taken it and then raised

    @never_raises
    def __repr__(self) -> str:
        state = "not taken yet" if self.version is None else f"answered by version {self.version}"
        return f"<Reply of the model {self._model.name!r}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a Reply is of the thread and the connection that asked, and cannot be pickled: send its result(), or the model "
            f"{self._model.name!r}, which every process of this machine may ask"
        )

    def done(self) -> bool:
        """Whether result() would return at once."""
        return self._future.done()

    def cancel(self) -> None:
        """It is not computed, if no batch has taken it yet; result() raises Cancelled."""
        self._kept.clear()
        self._future.cancel()

    def result(self, timeout: float | None = None) -> Any:
        """The model's answer, once.

        Raises:
            ModelError, DeadlineExceeded, Cancelled, ServiceDied: shoal.errors.
            TimeoutError: when `timeout` seconds have passed first; it may be asked for again.
        """
        if self._kept:
            return self._kept.pop()
        if not self._wait(timeout):
            raise TimeoutError(f"the model {self._model.name!r} has not answered after {timeout} s")
        leaves, structure, self.version = self._future.take(self._batched)
        self._model.version = self.version
        return answer_from(leaves, structure)

    def _wait(self, timeout: float | None) -> bool:
        """Whether result() has something to give or to raise, `timeout` seconds from now at most."""
        if self._kept:
            return True
        try:
            return self._future.wait(timeout)
        except ServiceDied:
            self._model.forget_connection()
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        """`await reply` is result() for asyncio: other tasks run meanwhile."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        from shoal.awaiting import readable  # which imports asyncio

        while not self._kept and (fd := self._future.watch()) >= 0:
            await readable(fd)
            if self._wait(0.0):
                break
        return self.result()


class ServiceModel:
    """A model of a ModelService: NumPy arrays in, NumPy arrays out.

        mask = model(image)                     # one row
        mask = await model.submit(image)        # the same in asyncio
        masks = model.batch(images)             # rows along the first dimension
        reply = model.submit(image); …; mask = reply.result()

    A call may have several arguments, also by keyword; each is an array, or a tuple or dict of arrays. A tensor of torch is
    taken where NumPy can look at it, and is a TypeError elsewhere. The model sees them stacked, with the rows of other callers, and answers with arrays whose first dimension is the rows, or with a tuple,
    list or dict of such. Rows whose shapes or dtypes differ go into different batches.

    Attributes:
        name: of the model.
        version: of the weights that gave the last answer; None before.
        pinned: the version of the weights that is to answer; 0 is the latest.

    Threads: any; each has a connection of its own. Fork: a child makes new ones. It can be pickled.
    """

    version: int | None = None

    def __init__(self, directory: Directory, name: str, pinned: int = 0) -> None:
        if name not in directory.names:
            raise ValueError(f"the service has no model {name!r}; it has {', '.join(directory.names)}")
        self._directory = directory
        self._number = directory.names.index(name)
        self.name = name
        self.pinned = pinned

    def __call__(self, *args: Any, timeout: float | None = None, reset: bool = False, **kwargs: Any) -> Any:
        """The model's answer to one row.

        Args:
            reset: of a Recurrent model: the state of this environment (`shoal.worker().env_index`) begins anew, also where
                this row fails, is cancelled, or has no time left.
            timeout: seconds; None: the service's.

        Raises:
            ModelError: the model raised; `traceback` is its traceback.
            DeadlineExceeded: `timeout` seconds have passed.
            ServiceDied: the service has ended.
        """
        return self._ask(args, kwargs, False, timeout, reset)

    def batch(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """The same for rows along the first dimension of every array; they need not be answered in one batch. Not of a
        Recurrent model, which is a ValueError: a batch says nothing of whose rows they are.

        Raises:
            OverCapacity: there are more than 4096 rows.
        """
        refuse_reset(kwargs)
        return self._ask(args, kwargs, True, timeout)

    def submit(
        self,
        *args: Any,
        timeout: float | None = None,
        reset: bool = False,
        wait: bool = True,
        batched: bool = False,
        **kwargs: Any,
    ) -> Reply:
        """Asks without waiting for the answer. The arrays may be written to as soon as this returns.

        It waits for the model in three cases: this thread asks with rows of this kind for the first time, more of its rows are in
        flight than ever before (16, or fewer large ones), or the batch that comes next is full.

        Args:
            timeout: seconds until it must be answered.
            reset: as of a call.
            wait: False raises OverCapacity in the last two of these cases.
            batched: rows along the first dimension, as of batch().

        Raises:
            OverCapacity: also for more than 4096 rows.
        """
        return self._submit(args, kwargs, batched, timeout, reset, wait)

    def pin(self, version: int) -> ServiceModel:
        """The same model, answering with the weights of `version`, whatever is updated meanwhile.

        A call raises ValueError when the service does not keep them (keep_versions), or cannot, since the model has no state_dict.
        """
        return ServiceModel(self._directory, self.name, checked_version("pin(version)", version))

    def gather(self, replies: Sequence[Reply], timeout: float | None = None) -> list[Any]:
        """The results of all of them, in their order.

        Raises:
            TimeoutError: they were not all there after `timeout` seconds; all may be asked for again.
            ModelError, DeadlineExceeded, Cancelled, ServiceDied: of the first that has failed; the others may still be asked for.
        """
        end = _end_of(timeout)
        if not all(reply._wait(_left(end)) for reply in replies):
            raise TimeoutError(f"the model {self.name!r} has not answered {len(replies)} requests after {timeout} s")
        answers: list[Any] = []
        try:
            for reply in replies:
                answers.append(reply.result())
        except BaseException:
            for reply, answer in zip(replies, answers, strict=False):
                reply._kept.append(answer)
            raise
        return answers

    def _ask(self, args: Any, kwargs: Any, batched: bool, timeout: float | None, reset: bool = False) -> Any:
        timeout = self._directory.timeout if timeout is None else timeout
        end = _end_of(timeout)
        for attempt in range(RETRIES + 1):
            try:
                return self._submit(args, kwargs, batched, _left(end), reset).result()
            except ServiceDied:
                if not self._directory.restarts or attempt == RETRIES:
                    raise
        raise AssertionError

    def _submit(
        self, args: Any, kwargs: Any, batched: bool, timeout: float | None, reset: bool, wait: bool = True
    ) -> Reply:
        leaves, structure = pack_arguments(args, kwargs)
        if timeout is None:
            timeout = self._directory.timeout
        end = _end_of(timeout)
        env = _core.process.this_worker_env()
        try:
            client = _client(self._directory.address, timeout)
            if batched:
                self._need_batches(client, end)
            future = client.submit(
                leaves,
                self._number,
                structure,
                batched,
                pinned=self.pinned,
                env=env,
                reset=reset,
                wait_for_room=wait,
                timeout=_left(end),
            )
        except BaseException as error:
            self.forget_connection()
            if type(error) in (TypeError, RuntimeError) and (refusal := refusal_of(leaves, self.name)):
                raise refusal from error
            raise
        return Reply(self, future, batched)

    def _need_batches(self, client: _core.serve.Client, end: float | None) -> None:
        """Raises ValueError where the model is Recurrent, which its server knows, on whichever host."""
        if self.name in self._directory.batched:
            return
        answer = ""
        try:
            client.submit([], self._number, WHETHER_BATCHED, False, timeout=_left(end))
        except ValueError as refusal:  # as it answers in any case: these are no rows
            answer = str(refusal)
        if answer == NOT_BATCHED:
            refuse_batch(self.name)
        if answer != MAY_BE_BATCHED:
            raise ValueError(answer)
        self._directory.batched.add(self.name)

    def forget_connection(self) -> None:
        """This thread's, where its server has ended: the next call makes another, to whoever has taken that server's place. One
        that is whole stays, since the states of Recurrent models go with it."""
        client = _connections.clients.get(self._directory.address)
        if client is not None and not client.alive:
            _connections.clients.pop(self._directory.address, None)

    def __reduce__(self) -> Any:
        return ServiceModel, (self._directory, self.name, self.pinned)

    @never_raises
    def __repr__(self) -> str:
        return f"<model {self.name!r} of a service at {self._directory.address}>"


def refuse_batch(name: str) -> NoReturn:
    """Of a Recurrent model."""
    raise ValueError(
        f"the model {name!r} is Recurrent: it keeps a state for each environment, and a batch says nothing of whose rows they "
        "are. Ask for one row at a time, model(row) or model.submit(row)"
    )


def refuse_reset(arguments: Mapping[str, Any]) -> None:
    """Raises TypeError where batch() was given it, among the model's own keywords."""
    if "reset" in arguments:
        raise TypeError(
            "batch() takes no reset: that is for the states of a Recurrent model, which is asked for one row at a time, "
            "model(row, reset=True)"
        )


def _end_of(timeout: float | None) -> float | None:
    """On the clock of time.monotonic()."""
    try:
        return None if timeout is None else time.monotonic() + timeout
    except TypeError:
        raise TypeError(f"timeout= takes seconds or None, got {timeout!r}") from None


def _left(end: float | None) -> float | None:
    """Seconds until then, 0 or more; what is no number stays so."""
    if end is None:
        return None
    left = end - time.monotonic()
    return 0.0 if left < 0.0 else left
