"""`shoal.worker()`: the worker that the calling code runs in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shoal import _core
from shoal.identity.gpus import leased_gpu
from shoal.identity.models import Models, models_here
from shoal.reprs import never_raises

if TYPE_CHECKING:
    from shoal._core.process import Counter, Identity
    from shoal.identity.ports import PortLease
    from shoal.identity.shared import SharedDict
    from shoal.serve.client import ServiceModel
    from shoal.serve.local import LocalModel

__all__ = ["Worker", "become", "introduce", "worker"]


class Worker:
    """A worker, as the code that runs in it sees it. `shoal.worker()` gives it, in every process: one that is nobody's
    worker, a plain script, is worker 0 of 1.

    Attributes:
        config: what `make_vec(config=…)` named, as it is here: a mapping from names to modules, classes and objects.
        context: what `make_vec(setup=…)` returned in this worker, or None.
        models: where model() looks: what `WorkerOptions(models=…)` named, or None.

    Threads: any. What says which environment runs (env_index, seed) means that of the calling thread, or, in a thread
    that an environment started, the one that the worker runs.
    """

    config: Mapping[str, Any] = MappingProxyType({})
    context: Any = None
    models: Models | None = None
    _is_plain = False
    _is_process = False  # what this process became; others come and go within it

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._leases: dict[int, PortLease] = {}
        self._counters: dict[str, Counter] = {}
        self._models: dict[str, ServiceModel | LocalModel] = {}
        self._large_seeds: dict[int, int] = {}  # of 65 bits or more, or negative
        self._pid = os.getpid()

    @property
    def index(self) -> int:
        """Its number, from 0 to num_workers - 1; a restarted worker keeps it."""
        return self._identity.index

    @property
    def num_workers(self) -> int:
        return self._identity.num_workers

    @property
    def num_envs(self) -> int:
        """Environments of this worker; 0 in a plain process."""
        return self._identity.num_envs

    @property
    def env_indices(self) -> range:
        """The environments of this worker, by their rows."""
        return range(self._identity.first_env, self._identity.first_env + self._identity.num_envs)

    @property
    def env_index(self) -> int | None:
        """The environment (its row in the vector environment) that is being built, reset, stepped, asked or closed; None
        when none is."""
        row: int | None = self._identity.env_index
        return row

    @property
    def seed(self) -> int | None:
        """The last seed of that environment: the one of the reset under way, and while it is built the one of
        make_vec(seed=…). None where it was given none."""
        env = self._identity.env_index
        if env is None:
            return None
        seed = self._identity.seed(env)
        return self._large_seeds.get(env) if seed is None else seed

    def set_seed(self, env: int, seed: int | None) -> None:
        """For those who run the environments."""
        fits = seed is None or 0 <= seed < 2**64
        self._identity.set_seed(env, seed if fits else None)
        if seed is not None and not fits:
            self._large_seeds[env] = seed
        else:
            self._large_seeds.pop(env, None)

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def is_worker(self) -> bool:
        """Whether this process was started as a worker."""
        return self._identity.is_worker

    @property
    def gpu(self) -> str | None:
        """The GPU that this worker has leased, as CUDA_VISIBLE_DEVICES names it (CUDA calls it device 0 here); None unless
        it was started with WorkerOptions(gpu="lease")."""
        return leased_gpu()

    def counter(self, name: str) -> Counter:
        """A whole number that all workers and their parent (`envs.counter(name)`) add to; made when it is first asked
        for, up to 256 of them. `.add(n=1)`, `.value`, `.set(n)`."""
        found = self._counters.get(name)
        if found is None:
            found = self._counters[name] = self._identity.shared_state.counter(name)
        return found

    @property
    def shared(self) -> SharedDict:
        """A small dict that all workers and their parent (`envs.shared`) read and write."""
        from shoal.identity.shared import SharedDict

        return SharedDict(self._identity.shared_state)

    def model(self, name: str) -> ServiceModel | LocalModel:
        """The model `name`: of the `shoal.ModelService` that the worker was given (`WorkerOptions(models=service)`), or one
        that this process loads itself (`WorkerOptions(models={…})`, or anywhere `shoal.serve.use({…})`). All are called
        alike: `worker.model("segment")(image)`, NumPy in, NumPy out.

        Raises:
            RuntimeError: when there are no models here.
            ValueError: when there is none of this name; the message names those there are.
        """
        found = self._models.get(name)
        if found is None:
            models = self.models or models_here()
            if models is None:
                raise RuntimeError(
                    f"shoal.worker().model({name!r}): this process was given no models. For the workers of make_vec: "
                    "worker=shoal.WorkerOptions(models=shoal.ModelService({…})); in a plain process: "
                    "shoal.serve.use({…}), with a dict from names to models"
                )
            found = models.find(name)
            if models is self.models:  # what a plain process uses may change
                self._models[name] = found
        return found

    def lease_port(self, range: range | tuple[int, int] | None = None, kind: str = "tcp") -> PortLease:
        """A port that no other lease of this machine has and that can be bound, on all addresses, without SO_REUSEADDR.

        It is this worker's until release(), the end of a `with` block, the end of the vector environment, or the end of the
        process, however it ends. Ports that were in use come again last.

        Args:
            range: where from: `range(20000, 21000)`, or (first, last) with both included. By default 20000 to 32767, which
                the kernel does not give to outgoing connections.
            kind: "tcp" or "udp".

        Raises:
            shoal.Error: when none is free; the message names the holders.
        """
        from shoal.identity.ports import lease_port

        return lease_port(self._identity, range, kind, self._leases)

    def scope(self, env: int | None = None) -> _core.process.IdentityScope:
        """A `with` block whose code is this worker's, of environment `env`, in this thread."""
        return _core.process.IdentityScope(self._identity, -1 if env is None else env)

    def close(self) -> None:
        """Ends it, after its environments: the context's close() is called where it has one, the ports are free. A plain
        process goes on."""
        if self._is_plain:
            return
        context, self.context = self.context, None
        try:
            if callable(getattr(context, "close", None)):
                context.close()
        finally:
            for lease in self.leases:
                lease.release()
            if not self._is_process:
                _known.pop(self._identity.key, None)

    @property
    def leases(self) -> tuple[PortLease, ...]:
        """What this worker holds."""
        return tuple(self._leases.values())

    @never_raises
    def __repr__(self) -> str:
        env = "" if self.env_index is None else f", environment {self.env_index}"
        return f"<shoal worker {self.index} of {self.num_workers}{env}, pid {self.pid}>"


_known: dict[int, Worker] = {}
"""By Identity.key: what this process became, the plain process, and the groups of environments that it runs itself."""


def worker() -> Worker:
    """The worker that the calling code runs in; see Worker. The same object for the same worker."""
    key = _core.process.this_worker_key()
    found = _known.get(key)
    if found is None:
        found = _known[key] = Worker(_core.process.this_worker())
        found._is_plain = True
    if found._pid != os.getpid():  # a forked child: it shares the counters, and holds none of the ports
        found._leases, found._pid = {}, os.getpid()
    return found


def introduce(identity: Identity) -> Worker:
    """Makes a worker known that lives in this process, as those of the serial backend do."""
    found = _known[identity.key] = Worker(identity)
    return found


def become(identity: Identity) -> Worker:
    """This process is that worker from here on."""
    _core.process.become(identity)
    found = introduce(identity)
    found._is_process = True
    return found
