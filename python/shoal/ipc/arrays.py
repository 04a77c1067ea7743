"""NumPy arrays that several processes see."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from shoal._core import ipc
from shoal.ipc.reducers import add_reducer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

__all__ = ["SharedArray", "reduce_array"]


def SharedArray(source: ArrayLike | tuple[int, ...], dtype: DTypeLike | None = None) -> np.ndarray:
    """A `numpy.ndarray` whose elements several processes see: sent to another process it is a handle, not a copy.

    Args:
        source: an array, whose elements are copied; or a shape (an int or a tuple of ints, together with `dtype`), which
            gives zeros.
        dtype: of the elements; needed with a shape, and no type with Python objects in it.

    An array lives for as long as anybody holds it or a view of it, in any process. Slices and views of it share its
    elements, in this process and when they are sent.
    """
    if dtype is not None and _is_shape(source):
        kind, values = np.dtype(dtype), None
        dims = tuple(int(n) for n in (source if isinstance(source, tuple) else (source,)))
        if min(dims, default=0) < 0 or math.prod(dims) * kind.itemsize > sys.maxsize:
            raise ValueError(f"SharedArray(): no array has the shape {dims}")
    else:
        values = np.asanyarray(source, dtype)
        dims, kind = values.shape, values.dtype
    if kind.hasobject:
        raise TypeError(f"elements of dtype {kind} are Python objects of one process: they cannot be shared")
    block = ipc.Block(max(1, math.prod(dims) * kind.itemsize))
    array: np.ndarray = np.ndarray(dims, kind, buffer=block)  # type: ignore[arg-type]  # it is a buffer, which its stub cannot say
    array[...] = np.zeros((), kind) if values is None else values
    return array


def _is_shape(source: Any) -> TypeGuard[int | np.integer | tuple[int | np.integer, ...]]:
    numbers = source if isinstance(source, tuple) else (source,)
    return all(isinstance(n, int | np.integer) for n in numbers)


def reduce_array(array: np.ndarray, blocks: list[ipc.Block]) -> Any:
    """What stands for an array in a pickle, by handle or by value; the blocks that it names are appended to `blocks`."""
    packed = ipc.pack_array(array, blocks)
    if packed is None:
        return NotImplemented
    if ipc.needs_dtype(array):
        return _array, (packed, array.dtype)
    return _array, (packed,)


def _array(packed: bytes, dtype: np.dtype | None = None) -> np.ndarray:
    array: np.ndarray = ipc.unpack_array(packed, dtype)
    return array


add_reducer(np.ndarray, reduce_array)
ipc.add_packer(np.ndarray, ipc.array_packer(), __name__)
