"""`RemoteService`: the models of a `ModelService` on another host, for the processes of this one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from shoal import _core
from shoal.errors import ServiceDied
from shoal.reprs import never_raises
from shoal.serve.arguments import check_choice, check_secret, checked_seconds, checked_timeout
from shoal.serve.client import Directory
from shoal.serve.face import ServiceFace
from shoal.serve.manager import Manager, manage

__all__ = ["RemoteService"]

_LONGEST_PAUSE = 1.0
"""Seconds between two connections where the first one ended at once."""


class RemoteService(ServiceFace):
    """What `ModelService.connect()` returns.

    Each instance of the service has one server here, a thread of this process, which passes batches on. Models, rows and answers
    are those of the service, whose versions of the weights say which made an answer and may be pinned. The states of Recurrent
    models are kept there, for each environment of each client here.

    It ends as a ModelService does, also when nobody in this process has it any more.

    Attributes:
        address: where it is found on this machine, as of ModelService.

    Threads: any. Fork: a child may ask the models, and does not own the connections.
    """

    _manager: RelayManager

    def __init__(
        self, where: str, secret: str | None, timeout: float | None, on_fault: str | None, start_timeout: float
    ) -> None:
        """As ModelService.connect()."""
        if not isinstance(where, str):
            raise ValueError(f'ModelService.connect(address) takes "host:port", got {where!r}')
        timeout = checked_timeout("ModelService.connect(timeout=…)", timeout)
        check_choice("ModelService.connect(on_fault=…)", on_fault, (None, "raise", "restart"))
        check_secret("ModelService.connect(secret=…)", secret)
        start_timeout = checked_seconds("ModelService.connect(start_timeout=…)", start_timeout)
        self._where = where
        self._manager = RelayManager(where, secret, start_timeout)
        first = self._manager.start(on_fault)
        self.directory = Directory(
            self._manager.frontend.address,
            tuple(first.models),
            self._manager.restarts,
            first.timeout if timeout is None else timeout,
        )
        self._forgotten = manage(self.directory, self._manager)

    def stats(self) -> dict[str, dict[str, Any]]:
        """As ModelService.stats(), of what this host has asked: `run` and `latency` have the way there and back; `version` is the
        newest that has answered."""
        return self._manager.statistics()

    def update(
        self, name: str, state: Mapping[str, Any], *, version: int | None = None, mode: str = "barrier"
    ) -> NoReturn:
        """Weights are updated where the service is, which numbers their versions.

        Raises:
            NotImplementedError: always, whatever the arguments.
        """
        self.model(name)
        raise NotImplementedError(
            f"the weights of {name!r} are those of the service at {self._where}: call update() of the ModelService there"
        )

    @never_raises
    def __repr__(self) -> str:
        return f"<RemoteService of {', '.join(self.directory.names)} at {self._where}>"


class RelayManager(Manager):
    """The connections to the instances of a service, and who connects again.

    Attributes:
        restarts: whether they do.
    """

    restarts = False

    def __init__(self, where: str, secret: str | None, start_timeout: float) -> None:
        super().__init__()
        self._where = where
        self._secret = secret
        self._start_timeout = start_timeout
        self._names: tuple[str, ...] = ()
        self._relays: list[_core.serve.Relay] = []
        self._left = 0  # of them, which run or are to run again

    def start(self, on_fault: str | None) -> _core.serve.Relay:
        """Connects; returns the first connection, which knows the service."""
        try:
            first = self._reach(0, 1)
            self._names = tuple(first.models)
            self._relays.append(first)
            self._relays += [self._reach(instance, 1) for instance in range(1, first.instances)]
        except BaseException:
            self._tell("the model service could not be connected to")
            raise
        self.restarts = first.restarts if on_fault is None else on_fault == "restart"
        self._left = len(self._relays)
        self._watchers += [
            threading.Thread(target=self._watch, args=(i,), name=f"shoal-relay-{i}", daemon=True)
            for i in range(len(self._relays))
        ]
        for watcher in self._watchers:
            watcher.start()
        return first

    def statistics(self) -> dict[str, dict[str, Any]]:
        """As RemoteService.stats()."""
        return self.frontend.statistics(len(self._relays))

    def _reach(self, instance: int, generation: int) -> _core.serve.Relay:
        try:
            relay = _core.serve.Relay(self.frontend, instance, self._where, self._secret, self._start_timeout)
        except TimeoutError:
            raise TimeoutError(
                f"no model service has answered at {self._where} for {self._start_timeout:g} s: start one there with "
                "shoal.ModelService(…, listen=…), whose `listening` is the address to connect to"
            ) from None
        if self._names and tuple(relay.models) != self._names:
            relay.close()
            raise ServiceDied(
                f"the model service at {self._where} has other models now: {', '.join(relay.models)}, where it had "
                f"{', '.join(self._names)}"
            )
        until = time.monotonic() + self._start_timeout
        while not self.frontend.wait_ready(instance, generation, 0.1):
            reason = relay.end_reason
            if reason or self._closing or time.monotonic() >= until:
                relay.close()
                raise ServiceDied(
                    f"the connection to the model service at {self._where} could not be used within "
                    f"{self._start_timeout:g} s{': ' if reason else ''}{reason or ''}"
                )
        return relay

    def _watch(self, instance: int) -> None:
        """The thread that waits for a connection's end and sees to what follows."""
        pause, generation = 0.0, 1
        while True:
            began = time.monotonic()
            self.frontend.wait_gone(instance)
            if self._closing:
                return self._relays[instance].close()
            reason = self._relays[instance].end_reason
            if not self.restarts:
                return self._give_up(reason)
            pause = min(_LONGEST_PAUSE, 2 * pause + 0.05) if time.monotonic() - began < _LONGEST_PAUSE else 0.0
            time.sleep(pause)
            generation += 1
            try:
                relay = self._reach(instance, generation)
            except Exception as error:
                return self._give_up(f"{reason}\n{error}")
            with self._lock:
                self._relays[instance].close()
                self._relays[instance] = relay
                if self._closing:
                    return

    def _give_up(self, reason: str) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0 and not self._closing
        if last:
            self.frontend.close(reason)

    def _release(self) -> None:
        for relay in self._relays:
            relay.close()
