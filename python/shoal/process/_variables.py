"""Environment variables that somebody gives to processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["checked_variables"]


def checked_variables(variables: Iterable[tuple[Any, Any]], what: str) -> list[tuple[str, str]]:
    """As texts.

    Raises:
        ValueError: naming the argument `what`, for what an environment cannot hold: `os.environ` refuses it, too, and a
            process that got it would have other variables.
    """
    texts = [(str(name), str(value)) for name, value in variables]
    for name, value in texts:
        if not name or "=" in name or "\0" in name:
            raise ValueError(
                f"{what} takes names of variables, which are not empty and have no '=' or NUL, got {name!r}"
            )
        if "\0" in value:
            raise ValueError(f"{what} takes values without NUL, got {value!r} for {name!r}")
    return texts
