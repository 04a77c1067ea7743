"""`ModelService`: starts the servers of models and looks after them."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import shoal.process
from shoal import _core
from shoal.errors import DeadlineExceeded, RemoteTraceback, ServiceDied, StartFailed
from shoal.ipc.pickling import dumps
from shoal.ipc.sharing import Parcel
from shoal.serve import server
from shoal.serve.client import RETRIES, Directory, drop_ended
from shoal.serve.face import ServiceFace, open_services
from shoal.serve.loading import check, load
from shoal.serve.remote import RemoteService
from shoal.serve.weights import pack_state

if TYPE_CHECKING:
    from shoal._core.process import WorkerProcess

__all__ = ["ModelService"]

_CONTEXTS = ("auto", "fork", "forkserver", "spawn", "thread")
_GRACE = 5.0
"""Seconds for a server to end by itself once it is told to, before it is killed."""
_HOPELESS = 2 * (RETRIES + 1)
"""Servers that die in a row without having answered a row: no other is started. One call on which every server dies costs
half of them, and its caller gets the error."""


class ModelService(ServiceFace):
    """Models that all workers ask, each loaded once: requests that come together are computed together.

        with shoal.ModelService({"segment": load_segmenter}, max_batch=64) as service:
            envs = shoal.make_vec(SegmentedWorld, 16, worker=shoal.WorkerOptions(models=service))

    A batch leaves as soon as its model is idle and there is a row; with `max_delay`, when its oldest row is that old, when
    it is full, or when all clients that ask for such rows wait.

    Other hosts ask it with `listen` here and `ModelService.connect()` there.

    Attributes:
        address: where it is found on this machine; an abstract Unix socket, for processes of this user.
        listening: "host:port" where it is found by other hosts, with the host of `listen`: for "0.0.0.0" they put a name or address
            of this one; None where it is not.

    Threads: any. Fork: a child may ask the models, and does not own the service.
    """

    def __init__(
        self,
        models: Mapping[str, Any],
        *,
        device: str = "cpu",
        max_batch: int = 64,
        max_delay: float = 0.0,
        instances: int = 1,
        buckets: Sequence[int] | None = None,
        keep_versions: int = 0,
        timeout: float | None = None,
        context: str = "auto",
        threads: int | None = None,
        preload: Sequence[str] = (),
        on_fault: str = "raise",
        start_timeout: float = 60.0,
        listen: str | None = None,
        secret: str | None = None,
    ) -> None:
        """Starts the servers, and returns when all of them have loaded the models.

        Args:
            models: by name, each a `torch.nn.Module` (it is put into eval mode, but for what torch.export made, and called with
                tensors under `torch.inference_mode()`); a function of a batch, called with NumPy arrays; a function without arguments,
                or a class, that returns one of these, called in the server; or the path of a file: TorchScript, a package of AOTInductor
                (`.pt2`), both run by the torch that is installed, or ONNX (`.onnx`; needs onnxruntime). A package takes the batch sizes that it was compiled for
                (`torch.export.Dim`): give max_batch and buckets accordingly.
            device: where models of torch compute; a package must have been compiled for it.
            max_batch: rows of a batch, at most.
            max_delay: seconds that a row may wait for others while its model is idle.
            instances: server processes, each with the models; a client stays with one.
            buckets: batch sizes that the models are to see: smaller batches are padded with copies of their first row.
                () is any size, the default unless on a CUDA device; there it is 1, 2, 4, … max_batch, and modules of torch are run as a
                CUDA graph of each size wherever they can be captured as one. What a module decides in Python, or draws there, is
                then decided once for each size.
            keep_versions: how many older versions of updated weights may still be pinned (ServiceModel.pin).
            timeout: seconds after which a request ends with DeadlineExceeded; None: none, but the end of the service.
            context: how the servers start, as in make_vec; "thread": in a thread of this process, to look at a model with
                a debugger; not with threads, preload or on_fault="restart".
            threads: of OpenMP, MKL, OpenBLAS and torch in each server; by default the CPUs shared out among instances.
            preload: modules that are imported before the models are unpickled.
            on_fault: "raise": once no server is left, requests end with ServiceDied; "restart": another server is started
                in the place of one that died, and calls that were under way are made again.
            start_timeout: seconds until the models must be loaded.
            listen: "host:port" at which other hosts may ask: an address of this machine, and a port, 0 for a free one.
            secret: a text that these hosts know, too; by default that of SHOAL_GROUP_SECRET. Beyond the loopback there has
                to be one. What crosses is not encrypted.

        Raises:
            TypeError, ValueError: for arguments that do not fit, before any process starts.
            Error: the port of `listen` is taken.
            Exception: what loading a model raised in a server.
        """
        checked = check(models, "ModelService()")
        self._check(max_batch, max_delay, instances, keep_versions, timeout, context, on_fault)
        if context == "thread":
            _refuse_in_threads(threads=threads is not None, preload=bool(preload), on_fault=on_fault != "raise")
        if not start_timeout > 0:
            raise ValueError(f"ModelService(start_timeout=…) takes a positive number of seconds, got {start_timeout!r}")
        self._plan = server.Plan(
            tuple(checked),
            max_batch,
            float(max_delay),
            _buckets(buckets, max_batch, device),
            str(device),
            keep_versions,
        )
        self._instances = instances
        self._on_fault = on_fault
        self._start_timeout = start_timeout
        self._closing = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        self._updates: dict[int, server.Update] = {}  # the last of each model
        self._workers: list[WorkerProcess | None] = [None] * instances
        self._watchers: list[threading.Thread] = []
        self._frontend = _core.serve.Frontend()
        self.directory = Directory(self._frontend.address, self._plan.names, on_fault == "restart", timeout)
        self._listener: _core.serve.Listener | None = None
        self.listening: str | None = None
        if listen is not None:
            self._listen(listen, secret)
        elif secret is not None:
            raise ValueError("ModelService(secret=…) is for services that other hosts ask: give listen, too")
        try:
            if context == "thread":
                self._start_threads(list(checked.values()))
            else:
                share = max(1, len(os.sched_getaffinity(0)) // instances)
                # OpenMP's threads spin while they wait for each other, by default, and the workers need the CPUs meanwhile.
                waits = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
                self._parcel = Parcel(data=False)  # weights are each server's own, and change by update()
                self._packed = dumps(list(checked.values()), "models", gpu=not _on_cpu(device), parcel=self._parcel)
                self._launcher = shoal.process.launcher(
                    context,
                    preload=[server.__name__, *preload],
                    threads=share if threads is None else threads,
                    env=waits,
                    hide_gpu=_on_cpu(device),
                    start_timeout=start_timeout,
                )
                self._start_processes()
        except BaseException:
            self._end("the model service could not be started")
            raise
        if self._listener is not None:
            self._listener.start()
        open_services.add(self)

    @staticmethod
    def _check(
        max_batch: int,
        max_delay: float,
        instances: int,
        keep_versions: int,
        timeout: float | None,
        context: str,
        on_fault: str,
    ) -> None:
        for name, value in (("max_batch", max_batch), ("instances", instances)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"ModelService({name}=…) takes a positive int, got {value!r}")
        if not isinstance(keep_versions, int) or isinstance(keep_versions, bool) or keep_versions < 0:
            raise ValueError(f"ModelService(keep_versions=…) takes an int, 0 or more, got {keep_versions!r}")
        if not 0 <= max_delay < 1e6:
            raise ValueError(f"ModelService(max_delay=…) takes seconds, 0 or more, got {max_delay!r}")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"ModelService(timeout=…) takes None or a positive number of seconds, got {timeout!r}")
        if context not in _CONTEXTS:
            raise ValueError(f"ModelService(context=…) takes one of {', '.join(map(repr, _CONTEXTS))}, got {context!r}")
        if on_fault not in ("raise", "restart"):
            raise ValueError(f"ModelService(on_fault=…) takes 'raise' or 'restart', got {on_fault!r}")

    @staticmethod
    def connect(
        address: str,
        *,
        secret: str | None = None,
        timeout: float | None = None,
        on_fault: str | None = None,
        start_timeout: float = 10.0,
    ) -> RemoteService:
        """The models of a service on another host, for the processes of this one: what takes a ModelService takes it as well.

            with shoal.ModelService.connect("node1:7000") as service:
                envs = shoal.make_vec(SegmentedWorld, 16, worker=shoal.WorkerOptions(models=service))

        Workers talk with this process through shared memory; what they ask crosses in whole batches, over one connection for
        each instance of the service.

        Args:
            address: its `listening`: "host:port".
            secret: the one that it has; by default that of SHOAL_GROUP_SECRET.
            timeout: as of ModelService; None: the service's.
            on_fault: "raise": requests end with ServiceDied when the service, its server or the connection is lost; "restart": it
                is connected to again, and calls that were under way are made again; None: as the service does with its servers.
            start_timeout: seconds until a service answers at `address`; with on_fault="restart" also when it has gone.

        Raises:
            TimeoutError: nobody answers there.
            ValueError: for an address that is none, or one beyond the loopback without a secret.
            Error: it refuses this process: another secret or version of Shoal, or it is something else; the message says which.
        """
        return RemoteService(address, secret, timeout, on_fault, start_timeout)

    def update(self, name: str, state: Mapping[str, Any], *, version: int | None = None, mode: str = "barrier") -> int:
        """New weights for a model: a `state_dict`. No batch has rows of two versions, and every reply says which weights
        made it (`Reply.version`, `ServiceModel.version`).

        Args:
            version: a number larger than the last; by default one more. The weights that were loaded are version 1.
            mode: "barrier" returns when every server has them, so that every later request gets them; "latest" returns at
                once, and requests get them as soon as the batch under way is done. Weights that do not fit are then told in
                the server's log alone.

        Returns:
            the version.

        Raises:
            ValueError: for weights that do not fit the model, which goes on with the old ones.
            ServiceDied: no server was there to take them; one that is started later does.
            DeadlineExceeded: a server has taken nothing for 5 s, since it is stopped.
        """
        if mode not in ("barrier", "latest"):
            raise ValueError(f"update(mode=…) takes 'barrier' or 'latest', got {mode!r}")
        number = self.model(name)._number
        packed = pack_state(state)
        with self._updating:
            last = self._updates[number][1] if number in self._updates else 1
            new = last + 1 if version is None else version
            if new <= last:
                raise ValueError(f"update(version={version}): the last one was {last}, and versions grow")
            before = self._updates.get(number)
            self._updates[number] = (number, new, packed)
            try:
                self._command("update", number, new, packed, wait=mode == "barrier")
            except ValueError:
                if before is None:
                    del self._updates[number]
                else:
                    self._updates[number] = before
                raise
        return new

    def _command(self, name: str, *arguments: Any, wait: bool) -> None:
        message = pickle.dumps((name, arguments))
        reached = 0
        failure: Exception | None = None
        for instance in range(self._instances):
            try:
                answer = self._frontend.command(instance, message, None if wait else 0.0)
            except (ServiceDied, DeadlineExceeded) as error:
                if isinstance(error, DeadlineExceeded) or failure is None:
                    failure = error
                continue
            reached += 1
            if answer is not None and (told := pickle.loads(answer)) is not None:
                raise ValueError(told[0]) from RemoteTraceback("\n\n" + told[1], told[1])
        try:
            if failure is not None and (reached == 0 or isinstance(failure, DeadlineExceeded)):
                raise failure
        finally:
            failure = None  # else it and this frame keep each other, and the service

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the servers have counted, by model: `rows` that were answered, in how many `batches`, `failed_rows`,
        `expired_rows`, `dropped_rows`, `padding_waste` (the share of computed rows that nobody had asked for), the
        `version` of the weights and the number of `clients`; and as distributions (count, mean, p50, p90, p99, max)
        `batch_rows`, and in seconds `queue_wait` (until the batch left), `run` (a batch) and `latency` (until the reply).
        """
        return self._frontend.statistics(self._instances)

    def close(self) -> None:
        """Ends the servers. Requests under way end with ServiceDied. May be called again."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
        self._end("the model service was closed")
        for watcher in self._watchers:
            if watcher is not threading.current_thread():
                watcher.join()
        for worker in self._workers:
            if worker is not None and not worker.join(_GRACE):
                worker.kill()
                worker.join()
        self._workers = [None] * self._instances
        drop_ended()
        open_services.discard(self)

    def __repr__(self) -> str:
        return f"<ModelService of {', '.join(self._plan.names)} at {self.address}>"

    # Other hosts

    def _listen(self, asked: str, secret: str | None) -> None:
        if not isinstance(asked, str):
            raise ValueError(f'ModelService(listen=…) takes "host:port", got {asked!r}')
        plan, directory = self._plan, self.directory
        self._listener = _core.serve.Listener(
            self.address,
            asked,
            list(plan.names),
            plan.max_batch,
            plan.max_delay,
            self._instances,
            directory.restarts,
            directory.timeout,
            secret,
        )
        self.listening = f"{asked.rpartition(':')[0]}:{self._listener.port}"

    def _end(self, notice: str) -> None:
        """Tells everybody why nothing is answered any more."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.close(notice)
        self._frontend.close(notice)

    # Servers

    def _start_threads(self, models: list[Any]) -> None:
        for i in range(self._instances):
            executor = server.Executor(
                self.address,
                i,
                [load(model, self._plan.device, self._plan.buckets) for model in models],
                self._plan,
            )
            thread = threading.Thread(target=executor.run, name=f"shoal-models-{i}", daemon=True)
            thread.start()
            self._watchers.append(thread)
            if not self._frontend.wait_ready(i, 1, self._start_timeout):
                self._end("the model service could not be started")
                raise StartFailed(f"a server of models is not ready after {self._start_timeout} s (start_timeout)")

    def _start_processes(self) -> None:
        try:
            calls = [self._call(i, {}) for i in range(self._instances)]
            self._workers = list(self._launcher.start(calls))
            for i in range(self._instances):
                self._wait_ready(i, 1)
        except BaseException:
            self._end("the model service could not be started")
            self._workers = []
            raise
        for i in range(self._instances):
            watcher = threading.Thread(target=self._watch, args=(i,), name=f"shoal-models-{i}", daemon=True)
            watcher.start()
            self._watchers.append(watcher)

    def _call(self, instance: int, updates: Mapping[int, server.Update]) -> tuple[Any, ...]:
        return server.run, self.address, instance, self._packed, self._plan, list(updates.values())

    def _wait_ready(self, instance: int, generation: int) -> None:
        worker = self._workers[instance]
        assert worker is not None
        waited = 0.0
        while not self._frontend.wait_ready(instance, generation, 0.1):
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

    def _watch(self, instance: int) -> None:
        """The thread that waits for a server's end and sees to what follows."""
        generation = 1
        hopeless = 0
        while True:
            before = self._rows()
            self._frontend.wait_gone(instance)
            if self._closing:
                return
            worker = self._workers[instance]
            assert worker is not None
            worker.join(_GRACE)
            reason = _obituary(worker, "while it was needed")
            hopeless = hopeless + 1 if self._rows() == before else 0
            try:
                if self._on_fault != "restart" or hopeless >= _HOPELESS:
                    raise ServiceDied(reason)
                generation += 1
                self._restart(instance, generation)
            except Exception as error:
                if not self._closing:
                    self._give_up(instance, reason if isinstance(error, ServiceDied) else f"{reason}\n{error}")
                return

    def _rows(self) -> int:
        return sum(model["rows"] for model in self.stats().values())

    def _restart(self, instance: int, generation: int) -> None:
        with self._updating:
            told = dict(self._updates)
        (worker,) = self._launcher.start([self._call(instance, told)])
        with self._lock:
            if self._closing:
                worker.kill()
                raise ServiceDied("closed")
            self._workers[instance] = worker
        self._wait_ready(instance, generation)
        with self._updating:  # what came while it loaded
            for number, update in self._updates.items():
                if told.get(number) != update:
                    self._frontend.command(instance, pickle.dumps(("update", update)), None)

    def _give_up(self, instance: int, reason: str) -> None:
        others = [worker for i, worker in enumerate(self._workers) if i != instance and worker is not None]
        if not any(worker.is_alive for worker in others):
            self._end(reason)


def _refuse_in_threads(**given: bool) -> None:
    """What only a server process could honour."""
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f'ModelService({name}=…) is for server processes: with context="thread" the models run in this one, where it '
                "would change nothing"
            )


def _on_cpu(device: Any) -> bool:
    return str(device) == "cpu"


def _buckets(buckets: Sequence[int] | None, max_batch: int, device: Any) -> tuple[int, ...]:
    if buckets is None:
        buckets = [2**i for i in range(max_batch.bit_length())] if str(device).startswith("cuda") else ()
    sizes = sorted(set(buckets))
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= max_batch:
            raise ValueError(f"ModelService(buckets=…) takes sizes from 1 to max_batch={max_batch}, got {size!r}")
    return tuple(sizes) if not sizes or sizes[-1] == max_batch else (*sizes, max_batch)


def _obituary(worker: WorkerProcess, when: str) -> str:
    how = worker.ended_with or "an unknown exit status"
    lines = [f"a server of the model service (pid {worker.pid}) ended with {how} {when}"]
    if tail := worker.log_tail:
        lines += ["its last lines:", *(f"    {line}" for line in tail[-20:])]
    return "\n".join(lines)
