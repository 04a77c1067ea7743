"""Which models `shoal.worker().model(name)` finds in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.identity.models import Models, set_models_here

if TYPE_CHECKING:
    from shoal.serve.face import ServiceFace

__all__ = ["models_from", "use"]


def use(models: ServiceFace | Mapping[str, Any] | None, *, device: str = "cpu") -> None:
    """What `shoal.worker().model(name)` gives in this process where no worker was given models: those of a service, or
    models that are loaded here when they are first asked for, and called directly.

        shoal.serve.use({"segment": load_segmenter})

    Args:
        models: a ModelService; a dict as ModelService takes it; None for none.
        device: where the models of a dict compute, as ModelService(device=).
    """
    set_models_here(None if models is None else models_from(models, "shoal.serve.use()", device))


def models_from(models: Any, what: str, device: str = "cpu") -> Models:
    """A ModelService's, or those of a dict, to be loaded on `device`; can be pickled where the dict can."""
    directory = getattr(models, "directory", None)
    if directory is not None:
        if device != "cpu":
            raise ValueError(f"{what}: device={device!r} is for models that are loaded here; give it to ModelService()")
        models_of_service: Models = directory
        return models_of_service
    from shoal.serve.local import LocalModels

    return LocalModels(models, what, device)
