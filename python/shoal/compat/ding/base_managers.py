"""`ding.envs`' managers of environments in the caller's process, with what makes them slow or wrong mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ding.envs import BaseEnvManager as PeersBaseEnvManager
from ding.envs import BaseEnvManagerV2 as PeersBaseEnvManagerV2
from ding.envs.env_manager.base_env_manager import EnvState

from shoal.compat.arguments import factories_of
from shoal.compat.ding.settings import whole
from shoal.compat.ding.trees import by_environment, offered, timestep_trees
from shoal.reprs import never_raises

__all__ = ["BaseEnvManager", "BaseEnvManagerV2"]


class BaseEnvManager(PeersBaseEnvManager):
    """Environments in this process, stepped one after the other.

    Takes the place of `ding.envs.BaseEnvManager`, and is one. Unlike it, a configuration may lack keys or be another class's,
    seeds of a caller's list stay there, and all environments are closed, whatever one of them raises.
    """

    _closed: bool

    def __init__(self, env_fn: Iterable[Callable[[], Any]], cfg: Any = None) -> None:
        super().__init__(factories_of(env_fn, type(self).__name__), whole(type(self), cfg))

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._env_num} environments{', closed' if self._closed else ''}>"

    def seed(self, seed: Any, dynamic_seed: bool | None = None) -> None:
        """Seeds of the next reset: environment i gets `seed + i`, or those of a list, or of a dict by environment."""
        super().seed(list(seed) if isinstance(seed, list) else seed, dynamic_seed)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        failures = []
        for i, env in enumerate(self._envs):
            try:
                env.close()
            except Exception as error:
                if hasattr(error, "add_note"):
                    error.add_note(f"environment {i}: close()")
                failures.append(error)
        if failures:
            raise failures[0]


class BaseEnvManagerV2(BaseEnvManager, PeersBaseEnvManagerV2):
    """BaseEnvManager with observations and timesteps as trees of arrays.

    Takes the place of `ding.envs.BaseEnvManagerV2`, and is one.
    """

    @property
    def ready_obs(self) -> Any:
        """One array, or tree of arrays, with a row for each environment of `ready_obs_id`."""
        env_ids = self.ready_obs_id
        return offered(self._ready_obs, env_ids, self._env_states)

    def step(self, actions: Any) -> list[Any]:
        """Steps the environments of `ready_obs_id`: an action for each, in their order; or a dict from environments to actions.

        Returns:
            A tree of arrays for each, in that order: obs, reward, done, info, env_id.

        Raises:
            ValueError: for another number of actions. Nothing has been stepped then.
        """
        self._check_closed()
        if not isinstance(actions, Mapping):
            actions = by_environment(actions, self.ready_obs_id)
        return timestep_trees(PeersBaseEnvManager.step(self, actions))
