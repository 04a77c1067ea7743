"""The servers of a `ModelService`: starts them, watches them, starts others in their place."""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import shoal.process
from shoal import _core
from shoal.errors import DeadlineExceeded, RemoteTraceback, ServiceDied, StartFailed
from shoal.ipc.pickling import dumps
from shoal.ipc.sharing import Parcel
from shoal.serve import server
from shoal.serve.client import RETRIES
from shoal.serve.failure import sendable, text_of, told
from shoal.serve.loaded import Shapes, shapes_of
from shoal.serve.loading import load
from shoal.serve.manager import Manager
from shoal.serve.weights import pack_state

if TYPE_CHECKING:
    from shoal._core.process import WorkerProcess

__all__ = ["ServerManager"]

_NAME = "model server"
_GRACE = 5.0
"""Seconds for a server to end by itself once it is told to, before it is killed."""
_HOPELESS = 2 * (RETRIES + 1)
"""Servers that die in a row without having answered a row: no other is started. One call on which every server dies costs
half of them, and its caller gets the error."""
_UNSURE = 3
"""Updates of a model that are kept while nobody knows whether they fit, beside one that does."""


class ServerManager(Manager):
    """The servers of a service, in processes or in threads of this one, and what other hosts ask them by.

    Attributes:
        workers: the server processes, by instance; none where they are threads.
    """

    def __init__(self, plan: server.Plan, instances: int, on_fault: str, start_timeout: float) -> None:
        super().__init__()
        self.workers: list[WorkerProcess | None] = [None] * instances
        self._plan = plan
        self._instances = instances
        self._on_fault = on_fault
        self._start_timeout = start_timeout
        self._running_here = instances  # servers, where they are threads
        self._updating = threading.Lock()
        # Of each model the newest that is known to fit, and later ones of which that is not known.
        self._updates: dict[int, tuple[server.Update, ...]] = {}
        self._shapes: dict[int, Shapes | None] = {}  # by model, of weights that fit it; None: unknown
        self._listener: _core.serve.Listener | None = None

    # Starting

    def start(self, models: Sequence[Any], context: str, threads: int | None, preload: Sequence[str]) -> None:
        """Returns when all servers have loaded the models, and lets other hosts in. What the arguments are, ModelService() says."""
        try:
            if context == "thread":
                self._start_threads(models)
            else:
                self._start_processes(models, context, threads, preload)
            self._learn_shapes()
        except BaseException:
            self._tell("the model service could not be started")
            self.workers = []
            raise
        if self._listener is not None:
            self._listener.start()

    def _learn_shapes(self) -> None:
        """While nobody asks the models, so that the answer comes at once."""
        try:
            answer = self.frontend.command(0, pickle.dumps(("shapes", ())), self._start_timeout)
        except (ServiceDied, DeadlineExceeded):  # its watcher sees to that
            return
        if answer is not None:
            self._shapes = dict(enumerate(_result(answer)))

    def _start_threads(self, models: Sequence[Any]) -> None:
        for i in range(self._instances):
            executor = server.Executor(
                self.frontend.address,
                i,
                [load(model, self._plan.device, self._plan.buckets) for model in models],
                self._plan,
            )
            thread = threading.Thread(target=self._run_here, args=([executor],), name=f"shoal-models-{i}", daemon=True)
            del executor  # it is the thread's, and ends with it
            thread.start()
            self._watchers.append(thread)
            if not self.frontend.wait_ready(i, 1, self._start_timeout):
                raise StartFailed(f"a server of models is not ready after {self._start_timeout} s (start_timeout)")

    def _run_here(self, given: list[server.Executor]) -> None:
        """The thread of a server that is none of a process's own.

        Args:
            given: its executor, which nobody else has: its clients see the end of the server that it keeps.
        """
        reason = ""
        try:
            given.pop().run()
        except BaseException as error:  # SystemExit, too: the thread ends, and nobody else tells of it
            reason = f"a server of the model service, a thread of process {os.getpid()}, ended by {told(error)}"
            print(f"model service: {reason}", file=sys.stderr, flush=True)
        with self._lock:
            self._running_here -= 1
            is_last = self._running_here == 0
        if reason and is_last and not self._closing:
            self._tell(reason)

    def _start_processes(
        self, models: Sequence[Any], context: str, threads: int | None, preload: Sequence[str]
    ) -> None:
        gpu = self._plan.device != "cpu"
        share = max(1, len(os.sched_getaffinity(0)) // self._instances)
        # OpenMP's threads spin while they wait for each other, by default, and the workers need the CPUs meanwhile.
        waits = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
        self._parcel = Parcel(data=False)  # weights are each server's own, and change by update()
        self._packed = dumps(list(models), "models", gpu=gpu, parcel=self._parcel)
        self._launcher = shoal.process.launcher(
            context,
            preload=[server.__name__, *preload],
            threads=share if threads is None else threads,
            env=waits,
            hide_gpu=not gpu,
            start_timeout=self._start_timeout,
        )
        self.workers = list(self._launcher.start([self._call(i, {}) for i in range(self._instances)], _NAME))
        for i in range(self._instances):
            self._wait_ready(i, 1)
        for i in range(self._instances):
            watcher = threading.Thread(target=self._watch, args=(i,), name=f"shoal-models-{i}", daemon=True)
            watcher.start()
            self._watchers.append(watcher)

    def _call(self, instance: int, updates: Mapping[int, tuple[server.Update, ...]]) -> tuple[Any, ...]:
        newest = list(itertools.chain.from_iterable(updates.values()))
        return server.run, self.frontend.address, instance, self._packed, self._plan, newest

    def _wait_ready(self, instance: int, generation: int) -> None:
        worker = self.workers[instance]
        assert worker is not None
        waited = 0.0
        while not self.frontend.wait_ready(instance, generation, 0.1):
            waited += 0.1
            if self._closing:
                worker.kill()
                raise ServiceDied("closed")
            if not worker.is_alive:
                worker.recv()  # raises what it reported
                raise StartFailed(_obituary(worker, "before its models were loaded"))
            if waited > self._start_timeout:
                worker.kill()
                raise StartFailed(
                    f"a server of models has not loaded them after {self._start_timeout} s (start_timeout)"
                )

    # Other hosts

    def listen(self, asked: str, timeout: float | None, secret: str | None) -> int:
        """Takes a port for other hosts, who are let in by start(), and returns its number."""
        plan = self._plan
        self._listener = _core.serve.Listener(
            self.frontend.address,
            asked,
            list(plan.names),
            plan.max_batch,
            plan.max_delay,
            self._instances,
            self._on_fault == "restart",
            timeout,
            secret,
        )
        return self._listener.port

    # Weights

    def update(self, number: int, state: Mapping[str, Any], version: int | None, mode: str) -> int:
        """As ModelService.update(), of the model with this number."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"update() is for process {self._pid}, which made the model service; this one was forked from it and may ask the "
                "models"
            )
        packed, shapes = pack_state(state), shapes_of(state)
        with self._updating:
            before = self._updates.get(number, ())
            last = before[-1][1] if before else 1
            new = last + 1 if version is None else version
            if new <= last:
                raise ValueError(f"update(version={version}): the last one was {last}, and versions grow")
            fitting = self._shapes.get(number)
            is_doubtful = fitting is not None and (not fitting or shapes != fitting)
            wait = mode == "barrier" or is_doubtful
            self._updates[number] = (*self._kept(number), (number, new, packed))
            try:
                # Of those that nobody waits for, a busy server loads the newest.
                self._command("update", number, new, packed, wait=wait, topic=0 if wait else number + 1)
            except ValueError:
                self._updates[number] = before
                raise
            if wait:  # they fit
                self._updates[number] = self._updates[number][-1:]
                self._shapes[number] = shapes
        return new

    def _kept(self, number: int) -> tuple[server.Update, ...]:
        """The updates of a model that a server which is started later takes where the next one does not fit."""
        updates = self._updates.get(number, ())
        if not updates or self._on_fault != "restart":
            return ()
        taken = self.statistics()[self._plan.names[number]]["version"]  # by every server
        if any(version == taken for _, version, _ in updates):
            updates = tuple(update for update in updates if update[1] >= taken)
        oldest, *unsure = updates
        return (oldest, *unsure[-(_UNSURE - 1) :])

    def _command(self, name: str, *arguments: Any, wait: bool, topic: int = 0) -> None:
        message = pickle.dumps((name, arguments))
        reached = 0
        failure: Exception | None = None
        for instance in range(self._instances):
            try:
                answer = self.frontend.command(instance, message, None if wait else 0.0, topic)
            except (ServiceDied, DeadlineExceeded) as error:
                if isinstance(error, DeadlineExceeded) or failure is None:
                    failure = error
                continue
            reached += 1
            if answer is not None:
                _result(answer)
        try:
            if failure is not None and (reached == 0 or isinstance(failure, DeadlineExceeded)):
                raise failure
        finally:
            failure = None  # else it and this frame keep each other, and the service

    def statistics(self) -> dict[str, dict[str, Any]]:
        """As ModelService.stats()."""
        return self.frontend.statistics(self._instances)

    # Deaths

    def _watch(self, instance: int) -> None:
        """The thread that waits for a server's end and sees to what follows."""
        hopeless = 0
        while True:
            before = self._rows()
            self.frontend.wait_gone(instance)
            worker = self.workers[instance]
            assert worker is not None
            if not worker.join(_GRACE):
                worker.kill()
                worker.join()
            if self._closing:
                return
            hopeless = hopeless + 1 if self._rows() == before else 0
            hopeless = self._replace(instance, _obituary(worker, "while it was needed"), hopeless)
            if hopeless == _HOPELESS:
                return

    def _replace(self, instance: int, reason: str, hopeless: int) -> int:
        """Starts servers in the place of one that has ended, until one takes clients.

        Args:
            reason: of the end, for clients that come when no server is left.
            hopeless: how many have died in a row without having answered a row.

        Returns:
            the same, with those that died while they loaded; _HOPELESS: there is no other.
        """
        failure = ""
        while not self._closing:
            if self._on_fault != "restart" or hopeless >= _HOPELESS:
                self._give_up(instance, reason + failure)
                break
            try:
                self._restart(instance)
                _core.log.write("info", "serve", sendable(f"{reason}; another has taken its place"))
                return hopeless
            except Exception as error:
                failure = f"\n{text_of(error)}"
                hopeless += 1
                worker = self.workers[instance]
                assert worker is not None
                worker.kill()
        return _HOPELESS

    def _rows(self) -> int:
        return sum(model["rows"] for model in self.statistics().values())

    def _restart(self, instance: int) -> None:
        """Returns when another server takes clients: one that has all updates that have returned."""
        generation = self.frontend.generation(instance) + 1
        self.frontend.hold_clients(instance)
        with self._updating:
            loaded = dict(self._updates)
        (worker,) = self._launcher.start([self._call(instance, loaded)], _NAME, [instance])
        with self._lock:
            if self._closing:
                worker.kill()
                raise ServiceDied("closed")
            self.workers[instance] = worker
        self._wait_ready(instance, generation)
        with self._updating:  # what came while it loaded
            for number, updates in self._updates.items():
                for update in updates:
                    if update not in loaded.get(number, ()):
                        self.frontend.command(instance, pickle.dumps(("update", update)), None)
            self.frontend.let_clients_in(instance)

    def _give_up(self, instance: int, reason: str) -> None:
        others = [worker for i, worker in enumerate(self.workers) if i != instance and worker is not None]
        if not any(worker.is_alive for worker in others):
            self._tell(reason)

    def _tell(self, notice: str) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close(notice)
        super()._tell(sendable(notice))

    def _release(self) -> None:
        for worker in self.workers:
            if worker is not None and not worker.join(_GRACE):  # it was started while its watcher was told to end
                worker.kill()
                worker.join()
        self.workers = [None] * self._instances


def _result(answer: bytes) -> Any:
    """What a command returned. Raises ValueError for one that failed."""
    result, failure = pickle.loads(answer)
    if failure is not None:
        message, trace = failure
        raise ValueError(message) from RemoteTraceback("\n\n" + trace, trace)
    return result


def _obituary(worker: WorkerProcess, when: str) -> str:
    how = worker.ended_with or "an unknown exit status"
    lines = [f"a server of the model service (pid {worker.pid}) ended with {how} {when}"]
    if tail := worker.log_tail:
        lines += ["its last lines:", *(f"    {line}" for line in tail[-20:])]
    return "\n".join(lines)
