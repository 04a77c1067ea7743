"""Which models `shoal.worker().model(name)` finds in a process whose worker was given none."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Models", "models_here", "set_models_here"]


class Models(Protocol):
    """Finds a model by its name."""

    def find(self, name: str) -> Any:
        """A `shoal.serve.ServiceModel` or a `shoal.serve.LocalModel`; ValueError when there is none of this name."""


_here: Models | None = None


def models_here() -> Models | None:
    return _here


def set_models_here(models: Models | None) -> None:
    """What `shoal.serve.use()` says."""
    global _here
    _here = models
