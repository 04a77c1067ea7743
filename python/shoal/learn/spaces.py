"""Spaces as a checkpoint describes them (JSON), to and from arrays: one array a leaf, depth first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["Leaf", "gymnasium_space", "leaves"]

Description = Mapping[str, Any]


class Leaf:
    """One array of a space."""

    def __init__(self, description: Description, keys: tuple[Any, ...]):
        self.keys = keys  # where it is in a sample: dict keys and tuple positions
        self.description = description
        self.dtype = np.dtype(description.get("dtype", "int8"))
        self.shape: tuple[int, ...] = tuple(description.get("shape", ()))

    @property
    def path(self) -> str:
        return "/".join(map(str, self.keys))

    def pick(self, sample: Any) -> Any:
        """This leaf's part of a sample."""
        for key in self.keys:
            try:
                sample = sample[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"the observation has no {self.path!r}") from None
        return sample

    def batch(self, value: Any) -> tuple[np.ndarray, bool]:
        """The value as [rows, …shape], and whether it was a single sample."""
        array = np.asarray(value)
        if not np.can_cast(array.dtype, self.dtype, casting="same_kind"):
            raise ValueError(f"{self._called} is {array.dtype}, the space takes {self.dtype}")
        array = np.ascontiguousarray(array, dtype=self.dtype).reshape(array.shape)
        if array.shape == self.shape:
            return array[np.newaxis], True
        if array.shape[1:] == self.shape and array.ndim == len(self.shape) + 1:
            return array, False
        raise ValueError(
            f"{self._called} has shape {array.shape}; one is {self.shape}, and a batch is {('n', *self.shape)}"
        )

    @property
    def _called(self) -> str:
        return f"the observation's {self.path!r}" if self.keys else "the observation"


def leaves(description: Description, keys: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """The arrays of a space, in the order in which the learner takes them."""
    if description["type"] == "Dict":
        for name, inner in description["spaces"]:
            yield from leaves(inner, (*keys, name))
    elif description["type"] == "Tuple":
        for i, inner in enumerate(description["spaces"]):
            yield from leaves(inner, (*keys, i))
    else:
        yield Leaf(description, keys)


def gymnasium_space(description: Description) -> Any:
    """The Gymnasium space."""
    from gymnasium import spaces

    kind = description["type"]
    if kind == "Box":
        shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
        low, high = (_bounds(description[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(description["n"], start=description["start"])
    if kind == "MultiDiscrete":
        shape = tuple(description["shape"])
        nvec, start = (np.reshape(description[name], shape) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(nvec, dtype=np.dtype(description["dtype"]).type, start=start)
    if kind == "MultiBinary":
        shape = tuple(description["shape"])
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return spaces.Dict({name: gymnasium_space(inner) for name, inner in description["spaces"]})
    return spaces.Tuple([gymnasium_space(inner) for inner in description["spaces"]])


def _bounds(values: list[Any], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    numbers: list[Any] = [float(value) for value in values]
    if dtype.kind in "iu":  # the largest integers have no float of their own
        limits = np.iinfo(dtype)
        numbers = [min(max(int(number), limits.min), limits.max) for number in numbers]
    array = np.array(numbers, dtype)
    return np.full(shape, array[0]) if array.size == 1 else array.reshape(shape)
