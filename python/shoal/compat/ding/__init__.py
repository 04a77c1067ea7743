"""DI-engine's environment managers on Shoal's engine.

from shoal.compat.ding import SubprocessEnvManagerV2      # the peer's arguments, methods and results

collector_env = SubprocessEnvManagerV2(env_fn=[make_env] * 8, cfg=cfg.env.manager)

Where a configuration chooses the class: `env_manager=dict(type="shoal", import_names=["shoal.compat.ding"])`. To import this is to
register, in DI-engine's registry: "shoal" (SyncSubprocessEnvManager), "shoal_async", "shoal_v2", "shoal_base", "shoal_base_v2".
What else `ding.envs` has (DingEnvWrapper, …) is here, too, as it is there.
"""

from __future__ import annotations

try:
    import ding.envs  # noqa: F401  # first: its modules import each other
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "ding":
        raise
    raise ModuleNotFoundError(
        "shoal.compat.ding needs DI-engine:  pip install DI-engine  (beside NumPy 2:  pip install 'shoal[ding]' && "
        "pip install --no-deps DI-engine)",
        name=error.name,
    ) from error

from shoal.compat.ding.base_managers import BaseEnvManager, BaseEnvManagerV2
from shoal.compat.ding.registry import install, register
from shoal.compat.ding.subprocess_managers import (
    AsyncSubprocessEnvManager,
    SubprocessEnvManager,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)
from shoal.names import names_of

__all__ = [
    "AsyncSubprocessEnvManager",
    "BaseEnvManager",
    "BaseEnvManagerV2",
    "SubprocessEnvManager",
    "SubprocessEnvManagerV2",
    "SyncSubprocessEnvManager",
    "install",
]

register()

__getattr__ = names_of("shoal.compat.ding", {}, ["ding.envs"], "")
