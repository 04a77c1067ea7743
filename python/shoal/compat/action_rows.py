"""Actions of any kind as rows of bytes: an environment gets what the caller gave, with its type, dtype and shape."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.ipc import cloudpickling

__all__ = ["HEADER", "ActionReader", "action_bytes", "packed_actions"]

HEADER = 16
"""Bytes before the values of a row:

 0      1      2          6            12                   16
 +------+------+----------+------------+--------------------+
 | form | ndim | dtype    | 3 lengths  | bytes of a pickle  |
 +------+------+----------+------------+--------------------+
"""

_ARRAY, _SCALAR, _PICKLE, _APART = range(1, 5)
"""Forms: an array, a NumPy scalar, a pickle in the row, a pickle that had no room and came before the step."""

_MOST_DIMENSIONS = 3
_PLAIN = frozenset("biuf")
"""Kinds of dtypes whose bytes are their value."""


def action_bytes(space: Any) -> int:
    """Room for an action of `space` as an array of at most eight bytes a value, and for pickles of small ones."""
    shape = getattr(space, "shape", None)
    values = int(np.prod(shape, dtype=np.int64)) if shape else 1
    return int(min(max(8 * values, 240), 1 << 20))


def packed_actions(actions: Sequence[Any] | np.ndarray, row_bytes: int) -> tuple[np.ndarray, dict[int, bytes]]:
    """One action an environment, as rows.

    Args:
        actions: anything that pickles. Arrays of one dtype and shape, and NumPy scalars of one dtype, are not pickled.
        row_bytes: of a row, HEADER among them.

    Returns:
        uint8 [len(actions), row_bytes], and the pickles that have no room there, by place.
    """
    rows = np.zeros((len(actions), row_bytes), np.uint8)
    values, form = _values_of(actions)
    if values is not None and _fill(rows, values, form):
        return rows, {}
    apart: dict[int, bytes] = {}
    for i in range(len(actions)):  # of what a library has for a batch, too, which may not iterate
        data = _pickled(actions[i])
        if HEADER + len(data) <= row_bytes:
            rows[i, 0] = _PICKLE
            rows[i, 12:HEADER] = np.frombuffer(len(data).to_bytes(4, "little"), np.uint8)
            rows[i, HEADER : HEADER + len(data)] = np.frombuffer(data, np.uint8)
        else:
            rows[i, 0] = _APART
            apart[i] = data
    return rows, apart


def _values_of(actions: Sequence[Any] | np.ndarray) -> tuple[np.ndarray | None, int]:
    """All of them as one array, where they are alike, and what each of them is."""
    if type(actions) is np.ndarray and actions.ndim:
        return actions, _ARRAY if actions.ndim > 1 else _SCALAR
    first = actions[0]
    kind = type(first)
    if kind is np.ndarray:
        dtype, shape = first.dtype, first.shape
        if dtype.isnative and all(type(a) is np.ndarray and a.dtype == dtype and a.shape == shape for a in actions):
            return np.stack(list(actions)), _ARRAY
    elif isinstance(first, np.generic) and all(type(action) is kind for action in actions):
        return np.array(list(actions)), _SCALAR
    return None, _PICKLE


def _fill(rows: np.ndarray, values: np.ndarray, form: int) -> bool:
    """False where the values have no place in the rows."""
    shape, dtype = values.shape[1:], values.dtype
    name = dtype.str.encode()
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if dtype.kind not in _PLAIN or len(name) > 4 or len(shape) > _MOST_DIMENSIONS or max(shape, default=0) > 0xFFFF:
        return False
    if HEADER + size > rows.shape[1]:
        return False
    lengths = np.zeros(_MOST_DIMENSIONS, "<u2")
    lengths[: len(shape)] = shape
    header = bytes([form, len(shape)]) + name.ljust(4, b"\0") + lengths.tobytes() + bytes(4)
    rows[:, :HEADER] = np.frombuffer(header, np.uint8)
    if size:
        rows[:, HEADER : HEADER + size] = np.ascontiguousarray(values).reshape(len(rows), -1).view(np.uint8)
    return True


def _pickled(action: Any) -> bytes:
    try:
        return pickle.dumps(action, pickle.HIGHEST_PROTOCOL)
    except Exception:  # what pickle cannot name: local classes, lambdas
        return cloudpickling.dumps(action)


class ActionReader:
    """The other end: from rows to actions. One an environment, since it remembers how the last row was to be read."""

    def __init__(self) -> None:
        self._header = b""
        self._form = 0
        self._end = HEADER
        self._dtype = np.dtype(np.uint8)
        self._shape: tuple[int, ...] = ()
        self._apart: bytes | None = None

    def set_apart(self, data: bytes) -> None:
        """The action of the next row, which had no room in it."""
        self._apart = data

    def read(self, row: np.ndarray) -> Any:
        """The action in `row`. It is the environment's own: the next one does not change it."""
        data = row.data
        if data[:HEADER] != self._header:
            self._take(data[:HEADER].tobytes())
        if self._form == _ARRAY:
            return np.ndarray(self._shape, self._dtype, data, HEADER).copy()
        if self._form == _SCALAR:
            return row[HEADER : self._end].view(self._dtype)[0]
        if self._form == _PICKLE:
            return pickle.loads(row[HEADER : self._end].tobytes())
        apart, self._apart = self._apart, None
        if apart is None:
            raise RuntimeError("an action that was to come before its step has not come")
        return pickle.loads(apart)

    def _take(self, header: bytes) -> None:
        self._header, self._form = header, header[0]
        if self._form in (_ARRAY, _SCALAR):
            self._dtype = np.dtype(header[2:6].rstrip(b"\0").decode())
            self._shape = tuple(np.frombuffer(header[6:12], "<u2")[: header[1]].tolist())
            self._end = HEADER + self._dtype.itemsize * int(np.prod(self._shape, dtype=np.int64))
        else:
            self._end = HEADER + int.from_bytes(header[12:HEADER], "little")
