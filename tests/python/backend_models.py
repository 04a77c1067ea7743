"""The model of test_serve_backends.py in the forms that backends take. `python backend_models.py FILE.pt2 [DEVICE]` compiles it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from shoal.learn.onnx_graph import Graph

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


def exported(device: str = "cpu") -> Any:
    import torch

    x, more = example()
    arguments = (x.to(device), {name: value.to(device) for name, value in more.items()})
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = ({0: rows}, {"image": {0: rows}, "index": {0: rows}})
    return torch.export.export(module().to(device), arguments, dynamic_shapes=shapes)


def compile_package(file: Path, device: str = "cpu") -> None:
    import torch

    configs = {
        "always_keep_tensor_constants": True,
        # What makes compiling quick.
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "aot_inductor.precompile_headers": False,
        "cpp_cache_precompile_headers": False,
    }
    torch._inductor.aoti_compile_and_package(exported(device), package_path=str(file), inductor_configs=configs)


def write_onnx(file: Path) -> None:
    graph = Graph("everything")
    x = graph.input("x", np.float32, (3,))
    image = graph.input("image", np.uint8, (2, 2))
    index = graph.input("index", np.int64, ())
    product = graph.node("MatMul", x, graph.constant(WEIGHT.T))
    graph.node("Add", product, graph.constant(BIAS), outputs=["linear"])
    graph.node("Div", graph.cast(image, np.float32), graph.constant(np.array(255, np.float32)), outputs=["scaled"])
    graph.node("Gather", graph.constant(TABLE), index, outputs=["row"], axis=0)
    graph.node("Mul", index, graph.constant(np.array(2, np.int64)), outputs=["double"])
    for name, dtype, shape in (
        ("linear", np.float32, (2,)),
        ("scaled", np.float32, (2, 2)),
        ("row", np.float32, (2,)),
        ("double", np.int64, ()),
    ):
        graph.output(name, dtype, shape)
    file.write_bytes(graph.as_bytes())


if __name__ == "__main__":
    compile_package(Path(sys.argv[1]), *sys.argv[2:])
