"""The model of test_serve_backends.py in the forms that backends take. `python backend_models.py FILE.pt2` compiles it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3) / 10
BIAS = np.float32([0.5, -0.5])
TABLE = np.arange(10, dtype=np.float32).reshape(5, 2)
"""No row has an index beyond it: the model fails on one that has."""


def answers(x: np.ndarray, image: np.ndarray, index: np.ndarray) -> list[np.ndarray]:
    """Its outputs for float32[n, 3], uint8[n, 2, 2] and int64[n]: float32[n, 2], float32[n, 2, 2], float32[n, 2], int64[n]."""
    return [x @ WEIGHT.T + BIAS, image.astype(np.float32) / 255, TABLE[index], index * 2]


def state() -> dict[str, np.ndarray]:
    return {"linear.weight": WEIGHT, "linear.bias": BIAS, "table": TABLE}


def module() -> Any:
    import torch

    class Everything(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.table = torch.nn.Parameter(torch.zeros(5, 2))

        def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]):
            image, index = more["image"], more["index"]
            return self.linear(x), {"image": image.float() / 255, "row": self.table[index], "double": index * 2}

    made = Everything()
    made.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state().items()})
    return made.eval()


def example() -> tuple[Any, ...]:
    import torch

    more = {"image": torch.zeros(4, 2, 2, dtype=torch.uint8), "index": torch.zeros(4, dtype=torch.int64)}
    return torch.zeros(4, 3), more


def exported() -> Any:
    import torch

    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows}, {"image": {0: rows}, "index": {0: rows}})
    return torch.export.export(module(), example(), dynamic_shapes=shapes)


def compile_package(file: Path) -> None:
    import torch

    configs = {
        "always_keep_tensor_constants": True,
        # What makes compiling quick.
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "aot_inductor.precompile_headers": False,
        "cpp_cache_precompile_headers": False,
    }
    torch._inductor.aoti_compile_and_package(exported(), package_path=str(file), inductor_configs=configs)


_FLOAT, _UINT8, _INT64 = 1, 2, 7
"""ONNX's numbers of the dtypes."""
_DTYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.int64): _INT64}


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of protocol buffers: numbers of fields, and their values."""
    made = b""
    for number, value in fields:
        if isinstance(value, int):
            made += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            made += _varint(number << 3 | 2) + _varint(len(data)) + data
    return made


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: int) -> bytes:
    ints = [_message((1, name), (3, value), (20, 2)) for name, value in attributes.items()]
    return _message(*((1, name) for name in inputs), (2, output), (4, kind), *((5, each) for each in ints))


def _constant(name: str, value: np.ndarray) -> bytes:
    dims = [(1, size) for size in value.shape]
    return _message(*dims, (2, _DTYPES[value.dtype]), (8, name), (9, np.ascontiguousarray(value).tobytes()))


def _rows(name: str, dtype: int, *sizes: int) -> bytes:
    """An input or output: any number of rows of these sizes."""
    dims = [_message((2, "rows")), *(_message((1, size)) for size in sizes)]
    return _message((1, name), (2, _message((1, _message((1, dtype), (2, _message(*((1, dim) for dim in dims))))))))


def write_onnx(file: Path) -> None:
    """By hand, as onnx.proto says, so that the tests need no package for it."""
    nodes = [
        _node("MatMul", ["x", "weight"], "product"),
        _node("Add", ["product", "bias"], "linear"),
        _node("Cast", ["image"], "pixels", to=_FLOAT),
        _node("Div", ["pixels", "white"], "scaled"),
        _node("Gather", ["table", "index"], "row", axis=0),
        _node("Mul", ["index", "two"], "double"),
    ]
    constants = {
        "weight": WEIGHT.T,
        "bias": BIAS,
        "white": np.array(255, np.float32),
        "table": TABLE,
        "two": np.array(2, np.int64),
    }
    inputs = [_rows("x", _FLOAT, 3), _rows("image", _UINT8, 2, 2), _rows("index", _INT64)]
    outputs = [
        _rows("linear", _FLOAT, 2),
        _rows("scaled", _FLOAT, 2, 2),
        _rows("row", _FLOAT, 2),
        _rows("double", _INT64),
    ]
    graph = _message(
        *((1, node) for node in nodes),
        (2, "everything"),
        *((5, _constant(name, value)) for name, value in constants.items()),
        *((11, each) for each in inputs),
        *((12, each) for each in outputs),
    )
    file.write_bytes(_message((1, 8), (7, graph), (8, _message((1, ""), (2, 13)))))


if __name__ == "__main__":
    compile_package(Path(sys.argv[1]))
