"""TorchRL's collectors, whose processes are Shoal's."""

from __future__ import annotations

import functools
import signal
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torchrl
from torchrl._comm.backends import _get_service_backend, normalize_service_backend
from torchrl.collectors import Collector as PeersCollector
from torchrl.collectors import MultiAsyncCollector as PeersMultiAsyncCollector
from torchrl.collectors import MultiCollector as PeersMultiCollector
from torchrl.collectors import MultiSyncCollector as PeersMultiSyncCollector

from shoal.errors import WorkerDied
from shoal.multiprocessing import get_context
from shoal.multiprocessing.logging import relay_of

__all__ = ["Collector", "MultiAsyncCollector", "MultiCollector", "MultiSyncCollector"]

_PRELOAD = ("torchrl.collectors", "torchrl.envs")
_LAST_LINES = 10


class _DirectMeta(type(PeersCollector)):  # type: ignore[misc]  # a class that is computed
    def __call__(
        cls,
        *args: Any,
        backend: str | None = None,
        backend_options: dict[str, Any] | None = None,
        num_collectors: int | None = None,
        sync: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """As the peer's; what is to run in processes of this machine runs in Shoal's."""
        chosen = _get_service_backend() if backend is None else normalize_service_backend(backend)
        if chosen == "process" or (chosen is None and num_collectors is not None):
            _check_chosen(args, kwargs, backend_options or {}, num_collectors, sync)
            kwargs.update(backend_options or {})
            args, kwargs, _ = cls._normalize_env_fns(args, kwargs, num_collectors)
            cls._drop_inapplicable_defaults(PeersMultiCollector, kwargs)
            return (MultiSyncCollector if sync else MultiAsyncCollector)(*args, **kwargs)
        own: Any = type(PeersCollector).__call__
        call: Any = _rebound(own, {"Collector": cls})
        return call(
            cls,
            *args,
            backend=backend,
            backend_options=backend_options,
            num_collectors=num_collectors,
            sync=sync,
            **kwargs,
        )


class Collector(PeersCollector, metaclass=_DirectMeta):
    """The peer's collector of this process; with `num_collectors=`, or `backend="process"`, one of the classes below.

    Takes the place of `torchrl.collectors.Collector`, and is one. What is faster is what it steps: a
    `shoal.compat.torchrl.ParallelEnv`.
    """


class _ProcessesOfShoal:
    """What the classes with processes have in common; before the peer's class among the bases."""

    _gpu: bool | None

    def __init__(self, *args: Any, gpu: bool | None = None, **kwargs: Any) -> None:
        """See the peer's.

        Args:
            gpu: whether the processes see this machine's GPUs. None: only where one of the device arguments, or the policy, names
                one, so that collectors on the CPU hold no memory of a GPU, whatever their environments import.
        """
        self._gpu = gpu
        super().__init__(*args, **kwargs)

    def _run_processes(self) -> None:
        function = _unwrapped(vars(PeersMultiCollector)["_run_processes"])
        names = {**_instead(), "_get_mp_ctx": functools.partial(_context, self._sees_gpu)}
        _rebound(function, names)(self)

    @property
    def _sees_gpu(self) -> bool:
        if self._gpu is not None:
            return self._gpu
        devices = [d for name in ("policy_device", "storing_device", "env_device") for d in getattr(self, name) or ()]
        policy = getattr(self, "policy", None)
        if isinstance(policy, torch.nn.Module):
            devices += [tensor.device for tensor in (*policy.parameters(), *policy.buffers())]
        return any(device is not None and torch.device(device).type == "cuda" for device in devices)


def _on_shoal(kind: Any) -> Any:
    """Gives a class the peer's methods anew, in which the names of `_instead()` are others."""
    names = _instead()
    known: set[str] = set()
    for base in kind.__mro__[1:]:
        if not base.__module__.startswith("torchrl."):
            known.update(vars(base))
            continue
        for name, value in vars(base).items():
            if name in known or name in vars(kind):
                continue
            known.add(name)
            function = _unwrapped(value)
            if isinstance(function, types.FunctionType) and set(function.__code__.co_names) & set(names):
                setattr(kind, name, _rebound(function, names))
    return kind


def _unwrapped(method: Any) -> Any:
    """What the peer has wrapped, so that it can be called by other machines."""
    while isinstance(method, types.FunctionType) and method.__code__.co_name == "unpack_rref_and_invoke_function":
        method = method.__wrapped__  # type: ignore[attr-defined]  # functools.wraps sets it
    return method


def _rebound(function: types.FunctionType, names: Mapping[str, Any]) -> types.FunctionType:
    """The same code, which finds `names` where it looks for a global of its module."""
    scope = {**function.__globals__, **names}
    copy = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__doc__ = function.__doc__
    copy.__qualname__ = function.__qualname__
    return copy


def _instead() -> dict[str, Any]:
    return {
        "_check_for_faulty_process": _check_alive,
        "_make_process_no_warn_cls": _process_maker,
        "_set_mp_start_method_if_unset": _leave_alone,
    }


def _leave_alone(*_: Any) -> None:
    """No global start method is set."""


def _context(gpu: bool) -> Any:
    """Whose processes a collector has."""
    return get_context("forkserver", gpu=gpu, preload=_PRELOAD)


def _process_maker(context: Any) -> Callable[..., Any]:
    def make(*, target: Callable[..., Any], num_threads: int | None, _start_method: str, kwargs: dict[str, Any]) -> Any:
        quiet = torchrl.filter_warnings_subprocess
        return context.Process(target=_run, args=(target, quiet), kwargs=kwargs, threads=num_threads, relay=True)

    return make


def _run(target: Callable[..., Any], is_quiet: bool, **kwargs: Any) -> None:
    """A collector's process."""
    with warnings.catch_warnings():
        if is_quiet:
            warnings.simplefilter("ignore")
        target(**kwargs)


def _check_alive(processes: list[Any]) -> None:
    """As the peer's check; what it raises says how a process ended, and what it wrote last."""
    for index, process in enumerate(processes):
        if process._closed or process.is_alive():
            continue
        code, pid = process.exitcode, process.pid
        lost = getattr(process._popen, "lost", None)
        relay = relay_of(True)
        relay.drain(pid, 1.0)
        tail = relay.tail(pid)
        for other in processes:
            if not other._closed and other.is_alive():
                other.terminate()
        how = _end_of(code) if lost is None else f"ended with {lost}"
        lines = "\nIts last lines:\n  " + "\n  ".join(tail[-_LAST_LINES:]) if tail else ""
        raise WorkerDied(
            f"At least one process failed: collector {index} (pid {pid}), with the environments of create_env_fn[{index}], "
            f"{how}. shutdown() closes what is left{lines}",
            worker=f"collector {index}",
            index=index,
            env_indices=range(index, index + 1),
            pid=pid,
            exitcode=code,
            log_tail=tail,
            kind="exit" if code is not None and code >= 0 else "killed",
            remedy="",
        )


def _end_of(code: int | None) -> str:
    if code is None:
        return "is gone, nobody knows how"
    if code >= 0:
        return f"ended itself with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"


def _check_chosen(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any], num_collectors: Any, sync: Any
) -> None:
    """What the peer refuses before it chooses a class, in its words where programs may look at them."""
    if len(args) > 2:
        raise TypeError("Collector accepts at most create_env_fn and policy positionally.")
    if num_collectors is not None and (isinstance(num_collectors, bool) or not isinstance(num_collectors, int)):
        raise TypeError("num_collectors must be a positive integer.")
    if num_collectors is not None and num_collectors < 1:
        raise ValueError("num_collectors must be a positive integer.")
    if sync is not None and not isinstance(sync, bool):
        raise TypeError("sync must be a boolean or None.")
    reserved = {"backend_options", "num_collectors", "num_workers", "sync"} & options.keys()
    if reserved:
        raise ValueError(f"backend_options contains reserved selector keys: {sorted(reserved)}.")
    twice = options.keys() & {*kwargs, *("create_env_fn", "policy")[: len(args)]}
    if twice:
        raise ValueError(f"Backend options duplicate top-level collector arguments: {sorted(twice)}.")


@_on_shoal
class MultiSyncCollector(_ProcessesOfShoal, PeersMultiSyncCollector):
    """Collectors in processes, whose parts of a batch are waited for.

    Takes the place of `torchrl.collectors.MultiSyncCollector`, and is one. Unlike it:

    - processes are forked from a zygote that has imported TorchRL, whatever the start method of the program; lambdas and closures
      are sent to them;
    - one that dies is a `shoal.WorkerDied`, with its signal or exit code and what it wrote last;
    - they see no GPU unless a device or the policy is on one, or `gpu=True`.
    """


@_on_shoal
class MultiAsyncCollector(_ProcessesOfShoal, PeersMultiAsyncCollector):
    """Collectors in processes, whose batches come in the order in which they are ready.

    Takes the place of `torchrl.collectors.MultiAsyncCollector`, and is one; see MultiSyncCollector. Unlike the peer's, a batch that a
    learner does not take at once waits for it: no collector collects over it.
    """

    @property
    def _queue_len(self) -> int:
        return int(self.num_workers)


class _MultiMeta(type(PeersMultiCollector)):  # type: ignore[misc]  # likewise
    def __call__(cls, *args: Any, sync: bool | None = None, **kwargs: Any) -> Any:
        if sync is None:
            return PeersMultiCollector(*args, **kwargs)
        return (MultiSyncCollector if sync else MultiAsyncCollector)(*args, **kwargs)


class MultiCollector(PeersMultiCollector, metaclass=_MultiMeta):
    """`MultiCollector(…, sync=True)` is a MultiSyncCollector, with `sync=False` a MultiAsyncCollector."""
