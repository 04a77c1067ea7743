"""ONNX files, written by hand as onnx.proto says: no package is needed for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["OPSET", "Graph"]

_IR_VERSION = 8
OPSET = 13
"""Of the operators; what every ONNX Runtime from 1.8 on has."""

_DTYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
"""TensorProto.DataType."""
_INT, _INTS = 2, 7
"""AttributeProto.AttributeType."""


class Graph:
    """A graph under construction. Values are named by strings, which node() and constant() return.

    Args:
        reserved: names of values that are still to come, which none that the graph finds itself will have.
    """

    def __init__(self, name: str, reserved: Iterable[str] = ()) -> None:
        self._name = name
        self._taken = set(reserved)
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._count = 0

    def node(self, kind: str, *inputs: str, outputs: Sequence[str] = (), **attributes: int | Sequence[int]) -> str:
        """An operator; returns its (first) output, which has a new name where `outputs` names none."""
        names = list(outputs) or [self._new_name(kind)]
        fields: list[tuple[int, Any]] = [*((1, name) for name in inputs), *((2, name) for name in names), (4, kind)]
        for name, value in attributes.items():
            if isinstance(value, int):
                fields.append((5, _message((1, name), (3, value), (20, _INT))))
            else:
                fields.append((5, _message((1, name), *((8, each) for each in value), (20, _INTS))))
        self._nodes.append(_message(*fields))
        return names[0]

    def cast(self, value: str, dtype: Any, outputs: Sequence[str] = ()) -> str:
        return self.node("Cast", value, outputs=outputs, to=_DTYPES[np.dtype(dtype).name])

    def constant(self, value: Any, name: str = "") -> str:
        """An array of the file."""
        array = np.asarray(value)
        name = self.unused(name) if name else self._new_name("constant")
        dims = [(1, size) for size in array.shape]
        data = np.ascontiguousarray(array).tobytes()
        self._constants.append(_message(*dims, (2, _DTYPES[array.dtype.name]), (8, name), (9, data)))
        return name

    def input(self, name: str, dtype: Any, shape: Sequence[int]) -> str:
        """Rows of this shape, as many as the caller has."""
        self._inputs.append(_rows(name, dtype, shape))
        return self._take(name)

    def output(self, name: str, dtype: Any, shape: Sequence[int]) -> None:
        """Rows of this shape: what a node has put out under this name."""
        self._outputs.append(_rows(name, dtype, shape))

    def unused(self, name: str) -> str:
        """`name`, or one like it where a value is called that already."""
        return self._new_name(name) if name in self._taken else self._take(name)

    def as_bytes(self, metadata: dict[str, str] | None = None) -> bytes:
        """What an .onnx file has in it."""
        graph = _message(
            *((1, node) for node in self._nodes),
            (2, self._name),
            *((5, constant) for constant in self._constants),
            *((11, each) for each in self._inputs),
            *((12, each) for each in self._outputs),
        )
        about = [(14, _message((1, key), (2, value))) for key, value in (metadata or {}).items()]
        opset = _message((1, ""), (2, OPSET))
        return _message((1, _IR_VERSION), (2, "shoal"), (7, graph), (8, opset), *about)

    def _new_name(self, stem: str) -> str:
        self._count += 1
        name = f"{stem}_{self._count}"
        return self._new_name(stem) if name in self._taken else self._take(name)

    def _take(self, name: str) -> str:
        self._taken.add(name)
        return name


def _rows(name: str, dtype: Any, shape: Sequence[int]) -> bytes:
    sizes = [_message((2, "rows")), *(_message((1, size)) for size in shape)]
    tensor = _message((1, _DTYPES[np.dtype(dtype).name]), (2, _message(*((1, size) for size in sizes))))
    return _message((1, name), (2, _message((1, tensor))))


def _message(*fields: tuple[int, Any]) -> bytes:
    """A message of protocol buffers: numbers of fields, and their values."""
    made = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            made += _varint(number << 3) + _varint(value % 2**64)
        else:
            data = value.encode() if isinstance(value, str) else value
            made += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(made)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
