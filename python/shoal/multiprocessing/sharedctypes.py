"""`multiprocessing.sharedctypes` in the heap of the family: CPython's code, run once more with our memory and our locks.

So a Value or Array needs no file and no descriptor, and goes through queues as well as to children.
"""

from __future__ import annotations

import importlib
import importlib.util
import types
from typing import Any

from shoal import _core
from shoal.multiprocessing import reduction, synchronize

__all__ = ["Array", "RawArray", "RawValue", "Value", "copy", "synchronized"]


class BufferWrapper:
    """A block of `size` bytes, as CPython's code wants it."""

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ValueError(f"Size {size:n} out of range")
        self._block = _core.ipc.Block(size)

    def create_memoryview(self) -> memoryview:
        return memoryview(self._block)  # type: ignore[arg-type]  # a buffer, which its stub cannot say; the view keeps it


def _reduce(wrapper: BufferWrapper, blocks: list[Any]) -> Any:
    block = wrapper._block
    blocks.append(block)
    return _rebuild, (_core.ipc.heap_id(), block.offset, block.serial)


def _rebuild(heap_id: int, offset: int, serial: int) -> BufferWrapper:
    if not _core.ipc.exists() or _core.ipc.heap_id() != heap_id:
        raise RuntimeError(
            "shared ctypes of another family of processes: only those started from their maker have them"
        )
    wrapper = BufferWrapper.__new__(BufferWrapper)
    wrapper._block = _core.ipc.acquire(offset, serial)
    return wrapper


reduction.add_reducer(BufferWrapper, _reduce)


def _load() -> dict[str, Any]:
    spec: Any = importlib.util.find_spec("multiprocessing.sharedctypes")
    names: dict[str, Any] = {"__name__": __name__, "__package__": "multiprocessing"}
    exec(spec.loader.get_code(spec.name), names)
    names["heap"] = types.SimpleNamespace(BufferWrapper=BufferWrapper)
    names["get_context"] = lambda: types.SimpleNamespace(RLock=synchronize.RLock)
    names["assert_spawning"] = lambda obj: None
    return {name: value for name, value in names.items() if not name.startswith("__") and name != "BufferWrapper"}


_names = _load()
globals().update({name: value for name, value in _names.items() if getattr(value, "__module__", None) == __name__})
RawArray, RawValue, Array, Value = (_names[name] for name in ("RawArray", "RawValue", "Array", "Value"))
copy, synchronized = _names["copy"], _names["synchronized"]
