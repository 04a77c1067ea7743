"""What a model is once it is loaded, wherever it came from."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["Loaded", "check_names", "check_shapes"]


class Loaded(abc.ABC):
    """A model in this process.

    Attributes:
        model: what answers.
        version: of its weights; 1 as it was loaded.
        initial_state: of a Recurrent model's environment; None for others.
        can_read, can_change: whether it has a state() and a set_state().
    """

    initial_state: Any = None
    can_read: bool = True
    can_change: bool = True

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


def _some(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    return f"{first!r}" + (f" and {len(more)} more" if more else "")
