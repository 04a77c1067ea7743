"""Models that Python calls: functions of a batch, and torch's modules."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.process.error_report import first_line
from shoal.serve.loaded import Loaded, Shapes, check_names, check_shapes, shapes_of
from shoal.serve.modes import switch
from shoal.serve.structure import tree_map

__all__ = ["InPython", "device_of", "is_module"]


def is_module(model: Any) -> bool:
    """Whether it is a torch.nn.Module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def device_of(device: Any) -> Any:
    """The torch.device. None is the CPU. Raises ValueError for a device that torch does not know, or that is not there."""
    import torch

    try:
        found = torch.device("cpu" if device is None else device)
        torch.empty(0, device=found)
    except Exception as error:  # RuntimeError, AssertionError: as torch was built
        raise ValueError(f"device={str(device)!r}: {first_line(error)}; device='cpu' is always there") from None
    return found


class InPython(Loaded):
    """A function, or a torch.nn.Module: what other models are compared with."""

    def __init__(self, model: Any, device: str = "cpu") -> None:
        super().__init__(model)
        self._torch: Any = None
        if is_module(model):
            import torch

            self._torch = torch
            self._device = device_of(device)
            self.model = switch(model, training=False).to(self._device)
        self.can_read = hasattr(self.model, "state_dict")
        self.can_change = hasattr(self.model, "load_state_dict")

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        if self._torch is None:
            return self.model(*args, **kwargs)
        with self._torch.inference_mode():
            return self.model(*tree_map(self._tensor, args), **tree_map(self._tensor, kwargs))

    def state(self) -> dict[str, Any]:
        if not self.can_read:
            raise TypeError(f"{self._what()} has no state_dict(), so its weights cannot be kept")
        return {name: _copy(value) for name, value in self.model.state_dict().items()}

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        if not self.can_change:
            raise TypeError(f"{self._what()} has no load_state_dict(), so no weights to update")
        load = self.model.load_state_dict
        if self._torch is None:
            # What the model gets is its own, to keep and to write to: the same state may be set again.
            load(copy.deepcopy(dict(state)))
        else:
            tensors = {name: self._torch.as_tensor(value, device=self._device) for name, value in state.items()}
            own = self.model.state_dict()
            check_names(own, tensors)
            check_shapes(own, tensors)
            with self._torch.no_grad():
                load(tensors)
        self.version = version

    def shapes(self) -> Shapes | None:
        if not (self.can_read and self.can_change):
            return super().shapes()
        try:
            return shapes_of(self.model.state_dict())
        except Exception:  # a method of the user's, which nobody has asked for
            return None

    def lend(self, rows: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        if self.gets_copies or "torch" in sys.modules:  # whose tensors write to read-only arrays
            return super().lend(rows)
        for array in rows:
            array.setflags(write=False)  # a function that writes to them fails before it has written
        return rows

    def _tensor(self, array: np.ndarray[Any, Any]) -> Any:
        return self._torch.from_numpy(array).to(self._device)

    def _what(self) -> str:
        return f"a model that is a {type(self.model).__name__}"


def _copy(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)
