"""The names of a package: its own, imported when they are first used; where it stands in for a library, else the library's."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["names_of", "needs_torch"]


def names_of(
    package: str, own: Mapping[str, str], peers: Sequence[str] = (), needs: str = "", roots: Sequence[str] = ()
) -> Callable[[str], Any]:
    """A package's `__getattr__`. What it has not is what the library has that it stands in for, if any: a line that imports
    several names from the library changes by its module alone.

    Args:
        package: its import path.
        own: the module of each of its names, or "module:name" where it has another name there.
        peers: modules of the library, in the order in which they are searched.
        needs: what the ModuleNotFoundError says where the library is not installed, for every public name. An AttributeError's
            text would be lost: `from package import name` says only that it cannot import it.
        roots: top-level modules whose absence means that; by default those of `peers`.
    """
    missing = set(roots) or {peer.partition(".")[0] for peer in peers}

    def find(name: str) -> Any:
        value = own_one(name) if name in own else peers_one(name)
        vars(sys.modules[package])[name] = value
        return value

    def own_one(name: str) -> Any:
        module, _, own_name = own[name].partition(":")
        try:
            return getattr(importlib.import_module(module), own_name or name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in missing:
                raise
            raise ModuleNotFoundError(needs, name=error.name) from error

    def peers_one(name: str) -> Any:
        text = f"module {package!r} has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(text)
        for peer in peers:
            try:
                module = importlib.import_module(peer)
            except ModuleNotFoundError as error:
                if not needs or (error.name or "").partition(".")[0] not in missing:
                    raise
                # `from package import module` asks here first, and looks for the module after an AttributeError alone.
                if importlib.util.find_spec(f"{package}.{name}") is not None:
                    raise AttributeError(text) from None
                raise ModuleNotFoundError(needs, name=error.name) from error
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(text)

    return find


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Within, torch is imported for `what`; where it is not installed, the error names the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"{what} needs torch:  pip install 'shoal[torch]'", name=error.name) from error
