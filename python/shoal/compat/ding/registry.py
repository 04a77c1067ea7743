"""How DI-engine finds these classes where no program names them."""

from __future__ import annotations

import sys

from ding.utils import ENV_MANAGER_REGISTRY

from shoal.compat.ding.base_managers import BaseEnvManager, BaseEnvManagerV2
from shoal.compat.ding.subprocess_managers import (
    AsyncSubprocessEnvManager,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)

__all__ = ["install", "register"]

_TYPES = {
    "shoal": SyncSubprocessEnvManager,
    "shoal_async": AsyncSubprocessEnvManager,
    "shoal_v2": SubprocessEnvManagerV2,
    "shoal_base": BaseEnvManager,
    "shoal_base_v2": BaseEnvManagerV2,
}


def register() -> None:
    """Makes the classes known as `type` of a configuration's `env_manager`."""
    for name, kind in _TYPES.items():
        ENV_MANAGER_REGISTRY.register(name, kind, force_overwrite=True)


def install() -> None:
    """Puts the classes into the places of the peer's in all of its modules that are imported: for what chooses its classes
    itself, such as the agents of `ding.bonus`."""
    of = {_peer(kind): kind for kind in _TYPES.values()}
    for name, module in list(sys.modules.items()):
        if name == "ding" or name.startswith("ding."):
            for key, value in list(vars(module).items()):
                if isinstance(value, type) and value in of:
                    setattr(module, key, of[value])


def _peer(kind: type) -> type:
    """The class of DI-engine whose place it takes."""
    return next(base for base in kind.__mro__[1:] if base.__name__ == kind.__name__)
