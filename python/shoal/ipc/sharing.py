"""What several processes share, among the objects that a worker is given: locks, queues, pipes, values, tensors, proxies.

Those of `multiprocessing` say how they are sent while a process is being started, which `Parcel` makes them believe; those
of shoal.multiprocessing name their blocks. Their descriptors wait at the broker of the family (src/shoal/ipc/heap/descriptor_broker.h)
for as long as the parcel is held, so that a worker that is started anew gets them, too.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from shoal._core import ipc
from shoal.ipc.reducers import by_type

__all__ = ["LeftFd", "Parcel", "leave_fd"]


class Parcel:
    """What keeps alive what the pickles of some workers name. Empty where they share nothing.

    For any number of `dumps(…, parcel=)`. Hold it for as long as a worker may be started with those pickles.

    Args:
        data: whether arrays and tensors that lie in shared memory stay there; otherwise they are copied, as all others are.
    """

    def __init__(self, data: bool = True) -> None:
        self._data = data
        self.blocks: list[Any] = []  # of the heap
        self._objects: list[Any] = []  # which others find by a name, or at their manager's, while they live here
        self._left: dict[int, LeftFd] = {}  # by descriptor, in the pickle that is being made

    # What multiprocessing's own reducers ask of a process that is being started.

    def DupFd(self, left: LeftFd) -> LeftFd:
        return left

    def duplicate_for_child(self, fd: int) -> LeftFd:
        if fd not in self._left:
            self._left[fd] = leave_fd(fd, self.blocks)
        return self._left[fd]

    @contextlib.contextmanager
    def packing(self) -> Iterator[None]:
        """For the block that pickles something for a worker, by reduce()."""
        context: Any = sys.modules.get("multiprocessing.context")
        before = context and context.get_spawning_popen()
        counts = len(self.blocks), len(self._objects)
        if context:
            context.set_spawning_popen(self)
        try:
            yield
        except BaseException:
            del self.blocks[counts[0] :], self._objects[counts[1] :]
            raise
        finally:
            self._left.clear()
            if context:
                context.set_spawning_popen(before)

    def seal(self, data: bytes, count: int) -> bytes:
        """The pickle `data`, with the way to the family where it names one of the blocks after the first `count`."""
        if len(self.blocks) == count:
            return data
        ipc.open_broker()
        return pickle.dumps(_Sealed(ipc.heap_id(), data))

    def reduce(self, obj: Any) -> Any:
        """What `__reduce__` may return, for an object that several processes share; NotImplemented for any other."""
        kind = type(obj)
        package = kind.__module__.partition(".")[0]
        if package in ("numpy", "torch"):
            return self._reduce_data(obj) if self._data else NotImplemented
        if package in _PLAIN:
            return NotImplemented
        if kind in by_type:
            return by_type[kind](obj, self.blocks)
        if package == "multiprocessing":
            _refuse_nameless(obj)
            self._objects.append(obj)
        stock: Any = sys.modules.get("multiprocessing.reduction")
        reducer = stock and stock.ForkingPickler._extra_reducers.get(kind)
        return reducer(obj) if reducer else NotImplemented

    def _reduce_data(self, obj: Any) -> Any:
        """Arrays and tensors: those that several processes see already; others are copied."""
        kind = type(obj)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            if not ipc.exists() or not ipc.contains(obj.__array_interface__["data"][0]):
                return NotImplemented
            from shoal.ipc.arrays import reduce_array

            return reduce_array(obj, self.blocks)
        if kind.__name__ not in ("Tensor", "Parameter", "UntypedStorage") or obj.device.type != "cpu":
            return NotImplemented
        from shoal.ipc import tensors

        if kind not in by_type or not tensors.is_shared(obj):
            return NotImplemented
        return by_type[kind](obj, self.blocks)


_PLAIN = frozenset({"builtins", "functools", "socket"})
"""Packages whose objects go as cloudpickle sends them, though multiprocessing has reducers of its own for some."""


_FACTORY_OF = {"Synchronized": "Value", "SynchronizedArray": "Array", "SynchronizedString": "Array"}


def _refuse_nameless(obj: Any) -> None:
    if _is_nameless(obj):
        kind = type(obj).__name__
        kind = _FACTORY_OF.get(kind, kind)
        raise TypeError(
            f"cannot pickle {kind!r} object: multiprocessing made it for the start method 'fork', so that none but forks of "
            f"this process can have it. Make it by shoal.multiprocessing.{kind}() or "
            f"multiprocessing.get_context('spawn').{kind}(), or start the workers with context='fork'"
        )


def _is_nameless(obj: Any) -> bool:
    """Whether it is, or has, a semaphore of multiprocessing that has lost its name already."""
    semaphore = getattr(obj, "_semlock", None)
    if semaphore is not None:
        return getattr(semaphore, "name", "") is None
    return any(
        type(part).__module__ == "multiprocessing.synchronize" and _is_nameless(part)
        for part in getattr(obj, "__dict__", {}).values()
    )


class _Sealed:
    """A pickle that is loaded when its process has joined the family."""

    def __init__(self, heap_id: int, data: bytes) -> None:
        self._arguments = heap_id, data

    def __reduce__(self) -> Any:
        return _loads, self._arguments


def _loads(heap_id: int, data: bytes) -> Any:
    ipc.join(heap_id)
    return pickle.loads(data)


class LeftFd:
    """A descriptor that waits at the family's broker; what multiprocessing calls a DupFd."""

    def __init__(self, offset: int, serial: int) -> None:
        self.place = offset, serial

    def detach(self) -> int:
        """A copy of it, which is the caller's."""
        fd = ipc.fetch_fd(*self.place)
        if fd < 0:
            raise EOFError("a descriptor that this worker is to share is gone: the process that kept it has ended")
        return fd


def leave_fd(fd: int, blocks: list[Any]) -> LeftFd:
    """Leaves a copy of `fd` at the broker until nobody holds the block that is appended to `blocks`."""
    ipc.open_broker()
    block = ipc.Block(1)
    ipc.leave_fd(block, fd)
    blocks.append(block)
    return LeftFd(block.offset, block.serial)
