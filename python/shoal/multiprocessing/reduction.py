"""How objects become messages: pickles beside which tensors and arrays stay where they are.

    data, blocks = dumps(obj)      # hold `blocks` until the other side has loaded, or give them to the queue
    obj = loads(data)

Protocol 5 with cloudpickle's rules: lambdas, closures, local classes and what a notebook or a script defines travel by value.
What cannot travel so goes by its name in the script, where that can be run again. What is registered with
`ForkingPickler.register` (here, or in `multiprocessing.reduction`) or `copyreg` holds here too. The bytes of torch's CPU
tensors and of larger NumPy arrays lie in the heap of the family of processes: the pickle names their blocks, so it can be
loaded by processes of the same family only, while somebody holds the blocks.
"""

from __future__ import annotations

import contextlib
import copyreg
import importlib
import io
import pickle
import sys
from collections import ChainMap
from multiprocessing import reduction as _cpython
from multiprocessing.reduction import ForkingPickler, register
from types import FunctionType
from typing import Any

from shoal._core import ipc
from shoal.errors import Error
from shoal.ipc import cloudpickling
from shoal.ipc.pickling import PicklingError, explain, is_of_pickling
from shoal.ipc.reducers import add_reducer, by_type
from shoal.multiprocessing import by_value, child, main_names

__all__ = [
    "ForkingPickler",
    "Pickler",
    "PicklingError",
    "add_reducer",
    "dump",
    "dumps",
    "loads",
    "recv_handle",
    "register",
    "send_handle",
]

# Modules that add their reducers once the library is imported, by whomever.
_waiting = {"torch": "shoal.ipc.tensors", "numpy": "shoal.ipc.arrays"}


def _look_again() -> bool:
    """Whether a library that was waited for has come."""
    found = [name for name in _waiting if sys.modules.get(name) is not None]
    for name in found:
        importlib.import_module(_waiting[name])
        _waiting.pop(name, None)
    return bool(found)


class Pickler(cloudpickling.Pickler):
    """Writes one message to `file`; `blocks` are those that it names."""

    dispatch_table = ChainMap(
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]  # CPython has it, typeshed does not
        by_value.reducers,
        *cloudpickling.Pickler.dispatch_table.maps,  # the last one is copyreg's
    )

    def __init__(self, file: Any, protocol: int | None = None) -> None:
        super().__init__(file, protocol=5 if protocol is None else protocol)
        self.blocks: list[ipc.Block] = []

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        reducer = by_type.get(kind)
        if reducer is not None:
            return reducer(obj, self.blocks)
        if kind is FunctionType:
            if obj.__module__ in _OWN_MODULES:
                return NotImplemented
            return self._function_reduce(obj)
        if _waiting and _look_again():
            return self.reducer_override(obj)
        if issubclass(kind, type):
            return main_names.reduce_class(obj, super().reducer_override(obj))
        if kind.__name__ == "nb_bound_method":  # of what is written in C++: event.wait
            return getattr, (obj.__self__, obj.__name__)
        return NotImplemented


class ByReferencePickler(Pickler):
    """Writes what `__main__` defines as its name, as CPython's pickles have it: the receiver may run the script for it."""

    dispatch_table = Pickler.dispatch_table.new_child({by_value.LruCache: by_value.LruCache.__reduce__})

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType):
            return NotImplemented
        return super().reducer_override(obj)


assert Pickler.dispatch_table.maps[-1] is copyreg.dispatch_table
# Their functions are found by name: no need to look into them.
_OWN_MODULES = frozenset({"shoal.ipc.tensors", "shoal.ipc.arrays"})


def acquire(heap_id: int, offset: int, serial: int) -> ipc.Block:
    """The block of a handle, in whichever process of the family."""
    if ipc.heap_id() != heap_id:
        raise Error(
            "a queue or connection of another family of processes: it can be used by the process that made it and by "
            "those that were started from it with shoal.multiprocessing"
        )
    return ipc.acquire(offset, serial)


def reduce_block(block: ipc.Block, blocks: list[ipc.Block]) -> Any:
    blocks.append(block)
    return acquire, (ipc.heap_id(), block.offset, block.serial)


add_reducer(ipc.Block, reduce_block)


def dumps(obj: Any, name: str = "object") -> tuple[bytes, list[ipc.Block]]:
    """`obj`, which errors call `name`, as a message, and the blocks that must live until it is loaded.

    torch's CPU storages move into the heap, in place: both sides share them. A NumPy array that lies in the heap is
    shared; another one is copied.

    Raises:
        PicklingError: naming the part of `obj` that cannot be pickled.
        RuntimeError: for a tensor that is no leaf and requires a gradient, in torch's words.
        OSError: there is not enough memory for a block.
    """
    blocks: list[ipc.Block] = []
    data = ipc.pickle_tree(obj, blocks)
    return pickled(obj, name) if data is None else (data, blocks)


def pickled(obj: Any, name: str = "object") -> tuple[bytes, list[ipc.Block]]:
    """dumps() of what is no tree of builtins, tensors and arrays."""
    try:
        return written(obj)
    except Exception as error:
        if found := by_reference(obj):
            return found
        if not is_of_pickling(error):
            raise
        raise explain(obj, error, _dump_again, name) from error


def written(obj: Any, pickler: type[Pickler] = Pickler) -> tuple[bytes, list[ipc.Block]]:
    """dumps() in one way, with the errors as they come."""
    with io.BytesIO() as file:
        writer = pickler(file)
        writer.dump(obj)
        return file.getvalue(), writer.blocks


def by_reference(obj: Any) -> tuple[bytes, list[ipc.Block]] | None:
    """What cannot travel by value, such as a class whose methods use a lock of the script; None where it cannot so either."""
    if child.main_script():
        with contextlib.suppress(Exception), child.pickling_by_reference():
            return written(obj, ByReferencePickler)
    return None


def _dump_again(obj: Any) -> bytes:
    return written(obj)[0]


def dump(obj: Any, file: Any, protocol: int | None = None) -> list[ipc.Block]:
    """Writes `obj` as a message to `file`; returns the blocks that must live until it is loaded."""
    pickler = Pickler(file, protocol)
    pickler.dump(obj)
    return pickler.blocks


loads = pickle.loads


def send_handle(conn: Any, handle: int, destination_pid: int) -> None:
    """Sends a descriptor over a connection, ours or CPython's. This process must live until it is received."""
    if not isinstance(conn, ipc.Connection):
        return _cpython.send_handle(conn, handle, destination_pid)
    from multiprocessing.resource_sharer import DupFd

    conn.send(DupFd(handle))


def recv_handle(conn: Any) -> int:
    """The descriptor that send_handle() sent; the caller's. Raises RuntimeError when something else came."""
    if not isinstance(conn, ipc.Connection):
        return _cpython.recv_handle(conn)
    sent = conn.recv()
    if not hasattr(sent, "detach"):
        raise RuntimeError(f"a descriptor should have come, and not {sent!r}")
    return int(sent.detach())


def __getattr__(name: str) -> Any:
    return getattr(_cpython, name)  # send_handle, DupFd, … are CPython's
