"""Spaces as a checkpoint describes them (JSON), as arrays: one array a leaf, depth first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal import _core

__all__ = ["Leaf", "description_of", "first_of_episodes", "leaves", "nested", "space_from"]

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
        """The value as [rows, …shape], and whether it was a single sample. A tensor will do, whose gradients are left aside."""
        detach = getattr(value, "detach", None)
        array = self._array(value if detach is None else detach())
        if not np.can_cast(array.dtype, self.dtype, casting="same_kind"):
            raise ValueError(f"{self.called} is {array.dtype}, the space takes {self.dtype}")
        array = np.ascontiguousarray(array, dtype=self.dtype).reshape(array.shape)
        if array.shape == self.shape:
            return array[np.newaxis], True
        if array.shape[1:] == self.shape and array.ndim == len(self.shape) + 1:
            return array, False
        batch = ", ".join(["n", *map(str, self.shape)])
        raise ValueError(f"{self.called} has shape {array.shape}; one is {self.shape}, and a batch is ({batch})")

    def _array(self, value: Any) -> np.ndarray:
        try:
            array = np.asarray(value)
        except ValueError:  # of parts that have different shapes
            array = None
        if array is None or array.dtype.kind not in "biuf":
            is_of_reset = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)
            hint = ": of what reset() returns, it is the first element" if is_of_reset else ""
            raise ValueError(
                f"{self.called} is a {type(value).__name__}, the space takes an array of {self.dtype} of shape {self.shape}{hint}"
            )
        return array

    @property
    def called(self) -> str:
        """In errors."""
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


def description_of(space: Any) -> dict[str, Any]:
    """A Gymnasium space as a checkpoint describes it.

    Raises:
        TypeError: for a space whose samples are no arrays.
    """
    if isinstance(space, spaces.Box):
        return {
            "type": "Box",
            "dtype": space.dtype.name,
            "shape": list(space.shape),
            "low": _bounds(space.low),
            "high": _bounds(space.high),
        }
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": space.dtype.name}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.ravel().tolist(),
            "start": space.start.ravel().tolist(),
            "shape": list(space.shape),
            "dtype": space.dtype.name,
        }
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": [[name, description_of(inner)] for name, inner in space.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [description_of(inner) for inner in space]}
    raise TypeError(f"learning takes observations and actions that are arrays; these are {space}")


def first_of_episodes(is_first: Any, rows: int) -> np.ndarray:
    """Whether each of so many observations begins an episode, [rows], of one flag for all or one for each.

    Raises:
        TypeError, ValueError: for what is no flag, and for another number of them.
    """
    flags = np.asarray(is_first)
    if flags.dtype != np.bool_:
        raise TypeError(f"is_first takes True or False, one for all observations or one for each; got {is_first!r}")
    if flags.shape not in ((), (rows,)):
        raise ValueError(f"is_first has shape {flags.shape}, and there are {rows} observations")
    return np.broadcast_to(flags, rows).copy()


def nested(description: Description, arrays: Iterator[Any]) -> Any:
    """A sample of a space, of its arrays in the order of leaves()."""
    if description["type"] == "Dict":
        return {name: nested(inner, arrays) for name, inner in description["spaces"]}
    if description["type"] == "Tuple":
        return tuple(nested(inner, arrays) for inner in description["spaces"])
    return next(arrays)


def space_from(description: Description) -> Any:
    """The Gymnasium space that is so described."""
    return _core.env.space_from_json(json.dumps(description))


def _bounds(bounds: np.ndarray) -> list[float | str]:
    return [
        float(b) if np.isfinite(b) else "nan" if np.isnan(b) else "inf" if b > 0 else "-inf" for b in bounds.ravel()
    ]
