"""What the worker processes of a vector environment are given."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Real
from typing import Any

from shoal.process._variables import checked_modules, checked_variables
from shoal.unknown_arguments import named_when_unknown

__all__ = ["WorkerOptions", "may_lose_rows"]


@named_when_unknown
@dataclass(frozen=True)
class WorkerOptions:
    """How worker processes are set up. All of it is in place before a worker's interpreter starts.

    What is set here and only a worker process can honour makes `make_vec(backend="auto")` take worker processes, also for
    one environment and for native ones; `backend="serial"`, `backend="thread"` and `num_workers=0` refuse it by name.

    Attributes:
        threads: threads of OpenMP, MKL, OpenBLAS and NumExpr in each worker. Many workers on few cores run best with 1.
        gpu: "none" hides every GPU from the workers; one that uses one all the same is an error that says who tried. "own"
            leaves the caller's GPUs visible. "lease" shows each worker one of them (NVIDIA's), the one that the fewest
            workers of this machine have (`shoal.worker().gpu`); a dead worker's goes to the next.
        affinity: "auto" confines workers when there is exactly one for every CPU that this process may use and `threads`
            is 1: to a CPU each, to fewer, or to the caller's, whichever makes steps shorter, which is measured while they
            step (`stats()["placement"]`). Otherwise, and with "none", the kernel places them. A list
            of CPUs confines worker i to CPU `affinity[i % len(affinity)]`; an element may be a list of CPUs itself, for
            workers of several threads.
        preload: names of modules that the zygote imports once, before any worker exists. The module of a registered
            environment, class or function is added by itself. Not for native environments, whose workers run no Python.
        env: environment variables, on top of the caller's.
        config: as make_vec(config=…).
        models: what `shoal.worker().model(name)` gives: those of a `shoal.ModelService`, or of a dict as it takes one, from
            which every worker loads its own. Not for native environments.
        model_device: where the models of a dict compute, as `ModelService(device=)`; another than "cpu" needs `gpu="own"`
            or `gpu="lease"`.
        nested: False keeps the workers from starting processes: what tries to gets PermissionError, from the kernel where
            it is no Python code. With True those that they start end with them.
        shared_bytes: what the values of `shoal.worker().shared` may take together, pickled.
        memory_limit: bytes that a worker process may have of its own (resident, without files and shared memory). One that
            has more is replaced between episodes, without a fault: a new worker takes over the environments' `np_random`
            and goes on with the next episodes, so that environments which carry nothing else from one episode to the next
            give the same trajectories. An environment whose episode has ended meanwhile waits for the others of its worker:
            its row is down (`infos["down"]`). In same-step mode the next one's first observation comes with a row of its own,
            whose action is ignored. With `recv()` in the order of arrival it comes later instead; where a batch
            cannot be filled without it, its row is down as well. One that is not sent in the middle of its episode keeps its
            worker from being replaced, and nobody else waiting. In a `WorkerPool` each vector environment moves to the new
            process when its own environments are between episodes; the old one ends when the last has left it.
        memory_hard_limit: bytes with which it is killed, which is a fault of the kind "memory"; twice `memory_limit` by
            default.
        start_timeout: seconds until every worker must have built its environments.
        allow_unsafe_fork: with `context="fork"`, fork although it is known to break here.
    """

    threads: int = 1
    gpu: str = "none"
    affinity: str | Sequence[int | Collection[int]] = "auto"
    preload: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    config: Any = None
    models: Any = None
    model_device: str = "cpu"
    nested: bool = True
    shared_bytes: int = 64 * 1024
    memory_limit: int | None = None
    memory_hard_limit: int | None = None
    start_timeout: float = 60.0
    allow_unsafe_fork: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.threads, int) or isinstance(self.threads, bool) or not 1 <= self.threads < 2**31:
            raise ValueError(f"WorkerOptions(threads=…) takes a positive int, got {self.threads!r}")
        if self.gpu not in ("none", "own", "lease"):
            raise ValueError(f"WorkerOptions(gpu=…) takes 'none', 'own' or 'lease', got {self.gpu!r}")
        if isinstance(self.affinity, str):
            if self.affinity not in ("auto", "none"):
                raise ValueError(f"WorkerOptions(affinity=…) takes 'auto', 'none' or CPUs, got {self.affinity!r}")
        else:
            object.__setattr__(self, "affinity", _cpus(self.affinity))
        for name in ("nested", "allow_unsafe_fork"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"WorkerOptions({name}=…) takes True or False, got {getattr(self, name)!r}")
        checked_variables(self.env, "WorkerOptions(env=…)")
        if self.models is not None and not isinstance(self.models, Mapping) and not hasattr(self.models, "directory"):
            raise TypeError(
                "WorkerOptions(models=…) takes a shoal.ModelService, or a dict from names to models, which every worker "
                f"loads; got {self.models!r}"
            )
        if self.model_device != "cpu":
            if not isinstance(self.models, Mapping):
                raise ValueError(
                    f"WorkerOptions(model_device={self.model_device!r}) is for models= as a dict, which every worker loads; "
                    "a ModelService has its own device="
                )
            if self.gpu == "none":
                raise ValueError(
                    f"WorkerOptions(model_device={self.model_device!r}) needs gpu='own' or gpu='lease': workers see no GPU"
                )
        object.__setattr__(self, "preload", checked_modules(self.preload, "WorkerOptions(preload=…)"))
        is_size = isinstance(self.shared_bytes, int) and not isinstance(self.shared_bytes, bool)
        if not is_size or not 0 < self.shared_bytes <= 2**30:
            raise ValueError(f"WorkerOptions(shared_bytes=…) takes an int from 1 to 2**30, got {self.shared_bytes!r}")
        for name in ("memory_limit", "memory_hard_limit"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**62):
                raise ValueError(f"WorkerOptions({name}=…) takes None or a positive number of bytes, got {value!r}")
        if self.memory_limit and self.memory_hard_limit and self.memory_hard_limit < self.memory_limit:
            raise ValueError(
                f"WorkerOptions(memory_hard_limit={self.memory_hard_limit}) is below memory_limit={self.memory_limit}"
            )
        if isinstance(self.start_timeout, bool) or not isinstance(self.start_timeout, Real):
            raise TypeError(f"WorkerOptions(start_timeout=…) takes seconds, got {self.start_timeout!r}")
        if not self.start_timeout > 0:
            raise ValueError(f"WorkerOptions(start_timeout=…) takes a positive number, got {self.start_timeout!r}")

    def gpus(self) -> list[str]:
        """Those that workers lease; none unless they do.

        Raises:
            ValueError: where they would, and this process sees no GPU.
        """
        if self.gpu != "lease":
            return []
        from shoal.process.gpus import visible_gpus

        found = visible_gpus()
        if not found:
            raise ValueError(
                'WorkerOptions(gpu="lease"): there is no NVIDIA GPU here, or CUDA_VISIBLE_DEVICES hides them all; '
                "`shoal doctor` tells"
            )
        return found

    def for_processes(self) -> list[str]:
        """The options that are set and that only a worker process can honour, as an error names them."""
        honoured_anywhere = {"config", "models", "model_device", "shared_bytes", "allow_unsafe_fork"}
        anywhere = {"gpu": "own", "affinity": "none"}  # what a process is that nobody has changed
        return [
            f"WorkerOptions({option.name}=…)"
            for option in fields(self)
            if option.name not in honoured_anywhere
            and getattr(self, option.name) not in (_default(option), anywhere.get(option.name))
        ]

    @property
    def for_engine(self) -> dict[str, Any]:
        """For the C++ engines, where a limit of 0 is none."""
        limit = self.memory_limit or 0
        return {
            "pin_workers": self.affinity == "auto" and self.threads == 1,
            "cpus": [] if isinstance(self.affinity, str) else self.affinity,
            "memory_limit": limit,
            "memory_hard_limit": self.memory_hard_limit or 2 * limit,
        }

    @property
    def for_launcher(self) -> dict[str, Any]:
        """What shoal.process.launcher() is given."""
        return {
            "threads": self.threads,
            "hide_gpu": self.gpu != "own",  # of a lease, the worker learns when it starts
            "env": self.env,
            "start_timeout": self.start_timeout,
            "allow_unsafe_fork": self.allow_unsafe_fork,
        }


def may_lose_rows(on_fault: str, options: WorkerOptions) -> bool:
    """Whether there may be rows that are no transitions, which infos then mark: of environments that were lost, or that wait
    for a worker to be replaced."""
    return on_fault != "raise" or options.memory_limit is not None


def _default(option: Any) -> Any:
    return option.default if option.default is not MISSING else option.default_factory()


def _cpus(affinity: Any) -> list[list[int]]:
    """The CPUs of every worker, checked."""
    what = "WorkerOptions(affinity=…) takes 'auto', 'none', or a list of CPUs or of lists of CPUs"
    try:
        cpus = [list(part) if isinstance(part, Collection) else [part] for part in affinity]
    except TypeError:
        raise TypeError(f"{what}, got {affinity!r}") from None
    if not cpus or not all(cpus):
        raise ValueError(f"{what}, none of them empty, got {affinity!r}")
    allowed = os.sched_getaffinity(0)
    for cpu in (cpu for part in cpus for cpu in part):
        if isinstance(cpu, bool) or not hasattr(cpu, "__index__"):
            raise TypeError(f"{what}, got {cpu!r} among them")
        if int(cpu) not in allowed:
            raise ValueError(
                f"WorkerOptions(affinity=…): this process may not use CPU {cpu}; it may use {sorted(allowed)}"
            )
    return [[int(cpu) for cpu in part] for part in cpus]
