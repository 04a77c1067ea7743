"""What `ModelService` and `WorkerOptions(models=)` are given for a model, as something that answers batches."""

from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from shoal.serve.in_python import InPython, is_module
from shoal.serve.loaded import Loaded
from shoal.serve.recurrent import Recurrent

__all__ = ["check", "load"]


def check(models: Any, what: str) -> dict[str, Any]:
    """Refuses what no model can be loaded from, before any process starts."""
    if not isinstance(models, Mapping) or not models:
        raise TypeError(f"{what} takes a dict from names to models, {{'NAME': model}}, got {models!r}")
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
    if not is_module(model) and _is_factory(model):
        made = model()
        if not callable(made):
            raise TypeError(f"the factory {model!r} of a model returned {made!r}, which cannot be called with a batch")
        model = made
    if device.startswith("cuda") and is_module(model):
        from shoal.serve.cuda import OnCuda

        return OnCuda(model, device, buckets)
    return InPython(model, device)


def _is_factory(model: Any) -> bool:
    """Whether it is called without arguments to get the model: a class, or a function that needs none."""
    if inspect.isclass(model):
        return True
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):  # builtins
        return False
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return not any(p.kind in several or p.default is p.empty for p in parameters)
