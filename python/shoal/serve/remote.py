"""`RemoteService`: the models of a `ModelService` on another host, for the processes of this one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from shoal import _core
from shoal.errors import ServiceDied
from shoal.serve.client import Directory, drop_ended
from shoal.serve.face import ServiceFace, open_services

__all__ = ["RemoteService"]

_LONGEST_PAUSE = 1.0
"""Seconds between two connections where the first one ended at once."""


class RemoteService(ServiceFace):
    """What `ModelService.connect()` returns.

    Each instance of the service has one server here, a thread of this process, which passes batches on. Models, rows and answers
    are those of the service, whose versions of the weights say which made an answer and may be pinned. The states of Recurrent
    models are kept there, for each environment of each client here.

    Attributes:
        address: where it is found on this machine, as of ModelService.

    Threads: any. Fork: a child may ask the models, and does not own the connections.
    """

    def __init__(
        self, where: str, secret: str | None, timeout: float | None, on_fault: str | None, start_timeout: float
    ) -> None:
        """As ModelService.connect()."""
        _check(where, timeout, on_fault, start_timeout)
        self._where = where
        self._secret = secret
        self._start_timeout = start_timeout
        self._closing = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._frontend = _core.serve.Frontend()
        self._relays: list[_core.serve.Relay] = []
        try:
            first = self._reach(0, 1)
            self._names = tuple(first.models)
            self._relays.append(first)
            self._relays += [self._reach(instance, 1) for instance in range(1, first.instances)]
        except BaseException:
            self._frontend.close("the model service could not be connected to")
            raise
        self._restarts = first.restarts if on_fault is None else on_fault == "restart"
        self._left = len(self._relays)  # that run, or are to run again
        self.directory = Directory(
            self._frontend.address, self._names, self._restarts, first.timeout if timeout is None else timeout
        )
        self._watchers = [
            threading.Thread(target=self._watch, args=(i,), name=f"shoal-relay-{i}", daemon=True)
            for i in range(len(self._relays))
        ]
        for watcher in self._watchers:
            watcher.start()
        open_services.add(self)

    def stats(self) -> dict[str, dict[str, Any]]:
        """As ModelService.stats(), of what this host has asked: `run` and `latency` have the way there and back; `version` is the
        newest that has answered."""
        return self._frontend.statistics(len(self._relays))

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

    def close(self) -> None:
        """Ends the connections. Requests under way end with ServiceDied. May be called again."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
        self._frontend.close("the model service was closed")
        for watcher in self._watchers:
            if watcher is not threading.current_thread():
                watcher.join()
        for relay in self._relays:
            relay.close()
        drop_ended()
        open_services.discard(self)

    def __repr__(self) -> str:
        return f"<RemoteService of {', '.join(self._names)} at {self._where}>"

    # Connections

    def _reach(self, instance: int, generation: int) -> _core.serve.Relay:
        try:
            relay = _core.serve.Relay(self._frontend, instance, self._where, self._secret, self._start_timeout)
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
        while not self._frontend.wait_ready(instance, generation, 0.1):
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
            self._frontend.wait_gone(instance)
            if self._closing:
                return
            reason = self._relays[instance].end_reason
            if not self._restarts:
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
            self._frontend.close(reason)


def _check(where: str, timeout: float | None, on_fault: str | None, start_timeout: float) -> None:
    if not isinstance(where, str):
        raise ValueError(f'ModelService.connect(address) takes "host:port", got {where!r}')
    if timeout is not None and not timeout > 0:
        raise ValueError(f"ModelService.connect(timeout=…) takes None or a positive number of seconds, got {timeout!r}")
    if on_fault not in (None, "raise", "restart"):
        raise ValueError(f"ModelService.connect(on_fault=…) takes None, 'raise' or 'restart', got {on_fault!r}")
    if not start_timeout > 0:
        raise ValueError(
            f"ModelService.connect(start_timeout=…) takes a positive number of seconds, got {start_timeout!r}"
        )
