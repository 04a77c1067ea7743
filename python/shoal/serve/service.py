"""`ModelService`: one model for all who ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.process._variables import checked_modules
from shoal.reprs import never_raises
from shoal.serve import server
from shoal.serve.arguments import (
    ANY_NUMBER,
    ROWS,
    SEVERAL,
    check_choice,
    check_secret,
    checked_buckets,
    checked_int,
    checked_seconds,
    checked_timeout,
    checked_version,
)
from shoal.serve.client import Directory
from shoal.serve.face import ServiceFace
from shoal.serve.loading import check
from shoal.serve.manager import manage
from shoal.serve.remote import RemoteService
from shoal.serve.servers import ServerManager

if TYPE_CHECKING:
    from shoal._core.process import WorkerProcess

__all__ = ["ModelService"]

_CONTEXTS = ("auto", "fork", "forkserver", "spawn", "thread")


class ModelService(ServiceFace):
    """Models that all workers ask, each loaded once: requests that come together are computed together.

        with shoal.ModelService({"segment": load_segmenter}, max_batch=64) as service:
            envs = shoal.make_vec(SegmentedWorld, 16, worker=shoal.WorkerOptions(models=service))

    A batch leaves as soon as its model is idle and there is a row; with `max_delay`, when its oldest row is that old, when
    it is full, or when all clients that ask for such rows wait.

    Other hosts ask it with `listen` here and `ModelService.connect()` there.

    It ends with close(), with the program, or when nobody in this process has it any more: neither the service, nor one of its
    models, nor a vector environment or a collector that was given it for its workers. Processes that were sent a model in another
    way do not keep it.

    Attributes:
        address: where it is found on this machine; an abstract Unix socket, for processes of this user.
        listening: "host:port" where it is found by other hosts, with the host of `listen`: for "0.0.0.0" they put a name or address
            of this one; None where it is not.

    Threads: any. Fork: a child may ask the models, and does not own the service.
    """

    _manager: ServerManager

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
                tensors under `torch.inference_mode()`); a function of a batch, called with NumPy arrays (memory of the service,
                which later rows are written to: one that keeps them keeps copies); a function that needs no arguments and takes no
                `*` or `**`, or a class, that returns one of these, called in the server; or the path of a file: TorchScript, a
                package of AOTInductor (`.pt2`), both run by the torch that is installed, or ONNX (`.onnx`; needs onnxruntime). A
                package takes the batch sizes that it was compiled for (`torch.export.Dim`): give max_batch and buckets accordingly.
            device: where models of torch compute; a package must have been compiled for it.
            max_batch: rows of a batch, at most.
            max_delay: seconds that a row may wait for others while its model is idle.
            instances: server processes, each with the models; a client stays with one.
            buckets: batch sizes that the models are to see: smaller batches are padded with copies of their first row.
                () is any size, the default unless on a CUDA device; there it is 1, 2, 4, … max_batch, and modules of torch are run as a
                CUDA graph of each size wherever they can be captured as one. What a module decides in Python, or draws there, is
                then decided once for each size.
            keep_versions: how many older versions of updated weights may still be pinned (ServiceModel.pin). One that was pinned
                stays until the server ends.
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
        what = "ModelService({}=…)".format
        max_batch = checked_int(what("max_batch"), max_batch, ROWS)
        instances = checked_int(what("instances"), instances, SEVERAL)
        threads = None if threads is None else checked_int(what("threads"), threads, SEVERAL)
        preload = checked_modules(preload, what("preload"))
        timeout = checked_timeout(what("timeout"), timeout)
        start_timeout = checked_seconds(what("start_timeout"), start_timeout)
        check_choice(what("context"), context, _CONTEXTS)
        check_choice(what("on_fault"), on_fault, ("raise", "restart"))
        if context == "thread":
            _refuse_in_threads(threads=threads is not None, preload=bool(preload), on_fault=on_fault != "raise")
        _check_others(listen, secret)
        plan = server.Plan(
            tuple(checked),
            max_batch,
            _delay(max_delay),
            checked_buckets(buckets, max_batch, device),
            str(device),
            checked_int(what("keep_versions"), keep_versions, ANY_NUMBER),
        )
        self._manager = ServerManager(plan, instances, on_fault, start_timeout)
        self.directory = Directory(self._manager.frontend.address, plan.names, on_fault == "restart", timeout)
        self.listening: str | None = None
        if listen is not None:
            port = self._manager.listen(listen, timeout, secret)
            self.listening = f"{listen.rpartition(':')[0]}:{port}"
        self._manager.start(list(checked.values()), context, threads, preload)
        self._forgotten = manage(self.directory, self._manager)

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
            version: an int larger than the last and less than 2**63; by default one more. The weights that were loaded are
                version 1.
            mode: "barrier" returns when every server has them, so that every later request gets them. It waits for the batch under
                way, and for a server that is stopped as long as that is so. "latest" returns at once, and requests get them as soon
                as the batch under way is done: of the updates that came meanwhile, a server loads the last three. For weights of
                other names or shapes than the model's, it waits as "barrier" does. Where a model refuses others by a
                `load_state_dict` of its own, the server's log tells it, and a server that is started later has the last weights
                that fitted.

        Returns:
            the version.

        Raises:
            ValueError: for weights that do not fit the model, and another version; it goes on with the old ones.
            ServiceDied: no server was there to take them; one that is started later does.
            DeadlineExceeded: a server is stopped, and so many updates wait for it that it takes no more: for 5 s it took none.
            RuntimeError: in a process that was forked from the one that made the service.
        """
        check_choice("update(mode=…)", mode, ("barrier", "latest"))
        if version is not None:
            version = checked_version("update(version=…)", version)
        return self._manager.update(self.model(name)._number, state, version, mode)

    def stats(self) -> dict[str, dict[str, Any]]:
        """What the servers have counted, by model: `rows` that were answered, in how many `batches`, `failed_rows`,
        `expired_rows`, `dropped_rows`, `padding_waste` (the share of computed rows that nobody had asked for), the
        `version` of the weights and the number of `clients`; and as distributions (count, mean, p50, p90, p99, max)
        `batch_rows`, and in seconds `queue_wait` (until the batch left), `run` (a batch) and `latency` (until the reply).
        A server that takes another's place begins anew.
        """
        return self._manager.statistics()

    @never_raises
    def __repr__(self) -> str:
        return f"<ModelService of {', '.join(self.directory.names)} at {self.address}>"

    @property
    def _workers(self) -> list[WorkerProcess | None]:
        """For tests that kill them."""
        return self._manager.workers


def _delay(seconds: float) -> float:
    takes = "seconds, 0 or more and less than 1e6"
    checked = checked_seconds("ModelService(max_delay=…)", seconds, takes=takes, zero=True)
    if checked >= 1e6:
        raise ValueError(f"ModelService(max_delay=…) takes {takes}, got {seconds!r}")
    return checked


def _check_others(listen: Any, secret: Any) -> None:
    """What other hosts reach a service by."""
    if listen is not None and not isinstance(listen, str):
        raise ValueError(f'ModelService(listen=…) takes "host:port", got {listen!r}')
    if secret is not None and listen is None:
        raise ValueError("ModelService(secret=…) is for services that other hosts ask: give listen, too")
    check_secret("ModelService(secret=…)", secret)


def _refuse_in_threads(**given: bool) -> None:
    """What only a server process could honour."""
    for name, is_given in given.items():
        if is_given:
            raise ValueError(
                f'ModelService({name}=…) is for server processes: with context="thread" the models run in this one, where it '
                "would change nothing"
            )
