"""What a model is once it is loaded, wherever it came from."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["Loaded", "Shapes", "check_names", "check_shapes", "shapes_of"]

Shapes = dict[str, tuple[int, ...] | None]
"""Of weights, by name."""


class Loaded(abc.ABC):
    """A model in this process.

    Attributes:
        model: what answers.
        version: of its weights; 1 as it was loaded.
        initial_state: of a Recurrent model's environment; None for others.
        can_read, can_change: whether it has a state() and a set_state().
        gets_copies: whether the rows of a batch are copied for it: it has written to its example, or failed on a batch.
    """

    initial_state: Any = None
    can_read: bool = True
    can_change: bool = True
    gets_copies: bool = False

    def __init__(self, model: Any) -> None:
        self.model = model
        self.version = 1

    @abc.abstractmethod
    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        """A batch in, a batch out, as the model makes it."""

    @abc.abstractmethod
    def state(self) -> dict[str, Any]:
        """A copy of its weights, for set_state()."""

    @abc.abstractmethod
    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        """New weights, between two batches: all of them or, where they do not fit, none."""

    def shapes(self) -> Shapes | None:
        """Of its weights; {} where they cannot be updated, None where it does not know them now."""
        return None if self.can_change else {}

    def lend(self, rows: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """What it is called with for the rows of a batch. Where it fails, it is asked again for each: `rows` are then to be what
        clients have sent, which nothing else has.

        A copy may cost as much as a cheap model, so the rows themselves are given to one that leaves its arguments alone.
        """
        return [array.copy() for array in rows] if self.gets_copies else rows


def shapes_of(state: Mapping[str, Any]) -> Shapes:
    """Of a `state_dict`; None for what has none, as weights of lazy modules have not yet."""
    return {str(name): _shape(value) for name, value in state.items()}


def check_names(own: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises ValueError unless the new weights are those that the model has."""
    if missing := own.keys() - new.keys():
        raise ValueError(f"the new weights lack {_some(missing)}")
    if unknown := new.keys() - own.keys():
        raise ValueError(f"the new weights have {_some(unknown)}, which the model has not")


def check_shapes(own: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises ValueError for one that has another shape than the model's."""
    for name, value in new.items():
        if tuple(value.shape) != tuple(own[name].shape):
            raise ValueError(
                f"{name!r} of the new weights has the shape {tuple(value.shape)}, not {tuple(own[name].shape)}"
            )


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(map(int, value.shape))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _some(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    return f"{first!r}" + (f" and {len(more)} more" if more else "")
