"""A policy's weights as one run of bytes, for the slots of a WeightStore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Layout", "layout_of"]

_ALIGNMENT = 64


class _Part(NamedTuple):
    """A tensor or array, at `offset`."""

    is_tensor: bool
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def describe(self) -> str:
        return f"{self.dtype.removeprefix('torch.')} of shape {self.shape}"


class Layout(NamedTuple):
    """Where the parts of a `state_dict` lie. Any process can make the same one of the same state_dict."""

    parts: dict[str, _Part]
    nbytes: int

    def pack(self, state: Mapping[str, Any]) -> np.ndarray:
        """The bytes of `state`.

        Raises:
            ValueError: where names, shapes or types are others than those of the policy's own.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"weights are a dict from names to tensors or arrays, got {state!r}")
        _check_names(set(state), set(self.parts))
        flat = np.zeros(self.nbytes, np.uint8)
        for name, part in self.parts.items():
            given = _part_of(name, state[name], 0)
            if (given.shape, given.dtype.removeprefix("torch.")) != (part.shape, part.dtype.removeprefix("torch.")):
                raise ValueError(f"weights {name!r} are {given.describe()}; the policy's are {part.describe()}")
            flat[part.offset : part.offset + part.nbytes] = _bytes_of(state[name])
        return flat

    def unpack(self, flat: np.ndarray) -> dict[str, Any]:
        """The state_dict whose bytes they are; its parts are views of them."""
        return {name: _view(part, flat) for name, part in self.parts.items()}


def layout_of(state: Mapping[str, Any]) -> Layout:
    """The layout of a state_dict.

    Raises:
        TypeError: for a part that is neither a tensor nor an array of numbers.
    """
    parts = {}
    offset = 0
    for name, value in state.items():
        part = _part_of(name, value, offset)
        parts[name] = part
        offset += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
    return Layout(parts, max(offset, 1))


def _check_names(given: set[str], wanted: set[str]) -> None:
    if given == wanted:
        return
    lacks, more = sorted(wanted - given), sorted(given - wanted)
    text = [f"without {', '.join(lacks[:5])}"] if lacks else []
    text += [f"with {', '.join(more[:5])}, which the policy has not"] if more else []
    raise ValueError(f"weights {' and '.join(text)}")


def _part_of(name: str, value: Any, offset: int) -> _Part:
    if hasattr(value, "element_size"):  # a tensor of torch
        return _Part(True, str(value.dtype), tuple(value.shape), offset, value.numel() * value.element_size())
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "USV":
        raise TypeError(
            f"weights {name!r} are a {type(value).__name__}: collectors in other processes get tensors and arrays of numbers"
        )
    return _Part(False, array.dtype.name, array.shape, offset, array.nbytes)


def _bytes_of(value: Any) -> Any:
    if not hasattr(value, "element_size"):
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    import torch

    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _view(part: _Part, flat: np.ndarray) -> Any:
    own = flat[part.offset : part.offset + part.nbytes]
    if not part.is_tensor:
        return own.view(part.dtype).reshape(part.shape)
    import torch

    dtype = getattr(torch, part.dtype.removeprefix("torch."))
    return torch.from_numpy(own).view(dtype).reshape(part.shape)
