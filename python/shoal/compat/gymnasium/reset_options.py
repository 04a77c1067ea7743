"""The options of a reset, whose `reset_mask` Gymnasium takes out of the caller's dict, whatever comes of it."""

from __future__ import annotations

from typing import Any

__all__ = ["without_mask"]


def without_mask(options: dict[str, Any] | None) -> dict[str, Any] | None:
    """Takes the mask out of `options`; returns them with it."""
    if not isinstance(options, dict) or "reset_mask" not in options:
        return options
    whole = dict(options)
    del options["reset_mask"]
    return whole
