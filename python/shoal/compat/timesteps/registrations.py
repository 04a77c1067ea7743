"""Environments that this program has registered, on their way into workers: DI-engine's own, which are forked, have them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

__all__ = ["registering"]

_LIBRARIES = ("gymnasium", "gym")
_MANY = 50
"""A package with more registrations than these is imported in the workers, which makes them."""


def registering() -> Callable[[], None] | None:
    """What a worker calls to know the ids that this process knows, of gymnasium and of gym; None where that is nothing new."""
    specs: list[tuple[str, str, bytes]] = []
    packages: list[str] = []
    for library in _LIBRARIES:
        own = {name: spec for name, spec in _registry(library).items() if _package(spec) not in _LIBRARIES}
        count = Counter(map(_package, own.values()))
        packages += [package for package, number in count.items() if number > _MANY and package not in packages]
        for name, spec in own.items():
            if _package(spec) not in packages:
                with contextlib.suppress(Exception):  # arguments of one may be anything; an environment may not need it
                    specs.append((library, name, bytes(cloudpickle.dumps(spec))))
    return functools.partial(_register, specs, packages) if specs or packages else None


def _register(specs: list[tuple[str, str, bytes]], packages: list[str]) -> None:
    for package in packages:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)
    for library, name, data in specs:
        importlib.import_module(f"{library}.envs.registration")
        registry = _registry(library)
        if name not in registry:
            with contextlib.suppress(Exception):
                registry[name] = pickle.loads(data)


def _registry(library: str) -> Any:
    """Specs by id; empty where the library has not been imported."""
    registry = getattr(sys.modules.get(f"{library}.envs.registration"), "registry", None)
    return registry if isinstance(registry, Mapping) else {}


def _package(spec: Any) -> str:
    entry = getattr(spec, "entry_point", None)
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "") or ""
    return module.partition(":")[0].partition(".")[0]
