"""What somebody gives to processes: environment variables, and modules that are imported first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["checked_modules", "checked_variables"]


def checked_variables(variables: Mapping[Any, Any], what: str) -> list[tuple[str, str]]:
    """As texts.

    Raises:
        TypeError: naming the argument `what`, for what is no mapping.
        ValueError: naming the argument `what`, for what an environment cannot hold: `os.environ` refuses it, too, and a
            process that got it would have other variables.
    """
    if not isinstance(variables, Mapping):
        raise TypeError(f"{what} takes a dict from names to values, got {variables!r}")
    texts = [(str(name), str(value)) for name, value in variables.items()]
    for name, value in texts:
        if not name or "=" in name or "\0" in name:
            raise ValueError(
                f"{what} takes names of variables, which are not empty and have no '=' or NUL, got {name!r}"
            )
        if "\0" in value:
            raise ValueError(f"{what} takes values without NUL, got {value!r} for {name!r}")
    return texts


def checked_modules(modules: Any, what: str) -> tuple[str, ...]:
    """Their names. Raises TypeError, which names the argument `what`, also for one str: its letters would be imported."""
    names = None if isinstance(modules, str) or not isinstance(modules, Iterable) else tuple(modules)
    if names is None or not all(isinstance(name, str) for name in names):
        got = f"the str {modules!r}: write [{modules!r}]" if isinstance(modules, str) else repr(modules)
        raise TypeError(f"{what} takes a sequence of module names, got {got}")
    return names
