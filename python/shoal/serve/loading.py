"""What `ModelService` and `WorkerOptions(models=)` are given for a model, as something that answers batches; files in files.py."""

from __future__ import annotations

import abc
import inspect
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shoal.serve.recurrent import Recurrent
from shoal.serve.structure import tree_map

__all__ = ["InPython", "Loaded", "check", "check_names", "check_shapes", "load"]


class Loaded(abc.ABC):
    """A model in this process.

    Attributes:
        model: what answers.
        version: of its weights; 1 as it was loaded.
        initial_state: of a Recurrent model's environment; None for others.
    """

    initial_state: Any = None

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


class InPython(Loaded):
    """A function, or a torch.nn.Module: what other models are compared with."""

    def __init__(self, model: Any, device: str = "cpu") -> None:
        super().__init__(model)
        self._torch: Any = None
        if _is_module(model):
            import torch

            self._torch = torch
            self._device = torch.device(device)
            self.model = model.eval().to(self._device)

    def __call__(self, args: list[np.ndarray[Any, Any]], kwargs: dict[str, Any]) -> Any:
        if self._torch is None:
            return self.model(*args, **kwargs)
        with self._torch.inference_mode():
            return self.model(*tree_map(self._tensor, args), **tree_map(self._tensor, kwargs))

    def state(self) -> dict[str, Any]:
        return {name: value.detach().clone() for name, value in self._with_weights("state_dict")().items()}

    def set_state(self, state: Mapping[str, Any], version: int) -> None:
        load = self._with_weights("load_state_dict")
        if self._torch is None:
            load(state)
        else:
            tensors = {name: self._torch.as_tensor(value, device=self._device) for name, value in state.items()}
            own = self.model.state_dict()
            check_names(own, tensors)
            check_shapes(own, tensors)
            with self._torch.no_grad():
                load(tensors)
        self.version = version

    def _tensor(self, array: np.ndarray[Any, Any]) -> Any:
        return self._torch.from_numpy(array).to(self._device)

    def _with_weights(self, name: str) -> Any:
        method = getattr(self.model, name, None)
        if method is None:
            raise TypeError(f"a model that is a {type(self.model).__name__} has no {name}(), so no weights to update")
        return method


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


def check(models: Any, what: str) -> dict[str, Any]:
    """Refuses what no model can be loaded from, before any process starts."""
    if not isinstance(models, Mapping) or not models:
        raise TypeError(f"{what} takes a dict from names to models, got {models!r}")
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(f"{what}: a model's name is a str, got {name!r}")
        if isinstance(model, Recurrent):
            check({name: model.model}, what)
        if not callable(model) and not isinstance(model, str | os.PathLike):
            raise TypeError(
                f"{what}: {name!r} is to be a torch.nn.Module, a function of a batch, a function without arguments that "
                f"returns one of these, or the path of a file; got {model!r}"
            )
        if isinstance(model, str | os.PathLike) and not Path(model).is_file():
            raise FileNotFoundError(f"{what}: {name!r} is to be loaded from {os.fspath(model)!r}, which is no file")
    return dict(models)


def load(model: Any, device: str = "cpu", buckets: Collection[int] = ()) -> Loaded:
    """A module as it is; a function of a batch as it is; what a function without arguments returns; what a file has.

    Args:
        buckets: sizes of the batches that it will see; a module on a CUDA device is captured for each.
    """
    if isinstance(model, Recurrent):
        loaded = load(model.model, device, buckets)
        loaded.initial_state = model.initial_state
        return loaded
    if isinstance(model, str | os.PathLike):
        from shoal.serve.files import load_file

        return load_file(model, device)
    if not _is_module(model) and _is_factory(model):
        made = model()
        if not callable(made):
            raise TypeError(f"the factory {model!r} of a model returned {made!r}, which cannot be called with a batch")
        model = made
    if device.startswith("cuda") and _is_module(model):
        from shoal.serve.cuda import OnCuda

        return OnCuda(model, device, buckets)
    return InPython(model, device)


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is_factory(model: Any) -> bool:
    """Whether it is called without arguments to get the model: a class, or a function that needs none."""
    if inspect.isclass(model):
        return True
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):  # builtins
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return not any(
        p.kind is inspect.Parameter.VAR_POSITIONAL or (p.kind in positional and p.default is p.empty)
        for p in parameters
    )
