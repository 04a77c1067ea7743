"""Environments that this program has registered, on their way into workers: forked ones have them, others would not."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from shoal.ipc import cloudpickling

__all__ = ["restore", "take"]

_LIBRARIES = ("gymnasium", "gym")


def take() -> bytes | None:
    """The ids that this process knows beyond those that the libraries come with, of gymnasium and of gym. None: there are none.

    An id whose registration cannot be pickled stays here: the environments may not need it.
    """
    specs = [
        (library, name, spec)
        for library in _LIBRARIES
        for name, spec in _registry(library).items()
        if _package(spec) not in _LIBRARIES
    ]
    if not specs:
        return None
    by_name = [entry for entry in specs if isinstance(getattr(entry[2], "entry_point", None), str)]
    singly = [entry for entry in specs if not isinstance(getattr(entry[2], "entry_point", None), str)]
    packed: list[bytes] = []
    try:
        packed.append(pickle.dumps(by_name))
    except Exception:  # keyword arguments of one may be anything
        singly = specs
    for entry in singly:
        with contextlib.suppress(Exception):
            packed.append(cloudpickling.dumps([entry]))
    return pickle.dumps(packed)


def restore(taken: bytes) -> None:
    """In a worker. What it has registered itself stays as it is, and a module that registers an id again when it is imported
    here is not warned of: it did so where the ids come from."""
    warnings.filterwarnings("ignore", r".*Overriding environment \S+ already in registry")
    for packed in pickle.loads(taken):
        with contextlib.suppress(
            Exception
        ):  # of what it needs something may be missing, which is told where it is made
            for library, name, spec in pickle.loads(packed):
                importlib.import_module(f"{library}.envs.registration")
                _registry(library).setdefault(name, spec)


def _registry(library: str) -> Any:
    """Specs by id; empty where the library has not been imported."""
    registry = getattr(sys.modules.get(f"{library}.envs.registration"), "registry", None)
    return registry if isinstance(registry, Mapping) else {}


def _package(spec: Any) -> str:
    entry = getattr(spec, "entry_point", None)
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "") or ""
    return module.partition(":")[0].partition(".")[0]
