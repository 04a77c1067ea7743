"""NumPy arrays that several processes see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
    shape: Any
    if dtype is not None and _is_shape(source):
        shape, kind, values = source, np.dtype(dtype), None
    else:
        values = np.asanyarray(source, dtype)
        shape, kind = values.shape, values.dtype
    if kind.hasobject:
        raise TypeError(f"elements of dtype {kind} are Python objects of one process: they cannot be shared")
    dims: tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
    block = ipc.Block(max(1, math.prod(dims) * kind.itemsize))
    array: np.ndarray = np.ndarray(dims, kind, buffer=block)  # type: ignore[arg-type]  # it is a buffer, which its stub cannot say
    array[...] = 0 if values is None and kind.names is None else np.zeros((), kind) if values is None else values
    return array


def _is_shape(source: Any) -> bool:
    return isinstance(source, int) or (isinstance(source, tuple) and all(isinstance(n, int) for n in source))


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
