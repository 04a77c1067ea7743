"""`send()` and `recv()` of vector environments that are stepped all together: a batch is all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

if TYPE_CHECKING:
    from shoal.vector.vector_env import VectorEnv

    Base = VectorEnv
else:
    Base = object

__all__ = ["WholeBatches"]


class WholeBatches(Base):
    """Code for AsyncVectorEnv runs on these, too. Actions may be sent in parts; the step begins with the last of them."""

    _parts: dict[int, Any] | None = None  # actions that wait for the others, by environment

    @property
    def batch_size(self) -> int:
        """Rows of what recv() returns: all environments."""
        return self.num_envs

    @property
    def env_ids(self) -> np.ndarray:
        """The environments of the rows, int64."""
        return np.arange(self.num_envs)

    @property
    def in_flight(self) -> int:
        """How many environments were sent and not received."""
        return self.num_envs if self._pending in ("reset", "step") else len(self._parts or ())

    def async_reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """reset_async(), whose result recv() returns; all environments."""
        if self._parts:
            raise AlreadyPendingCallError("async_reset: environments are in flight; recv() them first", "send")
        if options is not None and "reset_mask" in options:
            raise ValueError("async_reset: without batch_size all environments are reset; use reset() for some of them")
        self.reset_async(seed=seed, options=options)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Actions for `env_ids`, by default for all environments; see AsyncVectorEnv.send()."""
        if self._pending is not None or self.closed:
            self._check_idle("send")
        if env_ids is None and not self._parts:
            self.step_async(actions)
            return
        ids = _checked_ids(self.env_ids if env_ids is None else env_ids, self.num_envs)
        parts = dict(self._parts or {})
        busy = sorted(parts.keys() & set(ids))
        if busy:
            raise AlreadyPendingCallError(
                f"send: environments {busy} are in flight already; recv() first. Nothing was sent", "send"
            )
        if not self._was_reset:
            self.step_async(actions)  # raises
        rows = list(self._rows_of(actions, len(ids)))
        if len(rows) != len(ids):
            raise ValueError(f"send: {len(rows)} actions for {len(ids)} env_ids")
        parts.update(zip(ids, rows, strict=True))
        if len(parts) == self.num_envs:
            space = self.single_action_space
            ordered = [parts[i] for i in range(self.num_envs)]
            self.step_async(concatenate(space, ordered, create_empty_array(space, self.num_envs)))
            self._parts = None
        else:
            self._parts = parts

    def recv(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The result of all environments; see AsyncVectorEnv.recv()."""
        if self._pending == "reset":
            observations, infos = self.reset_wait(timeout)
            rewards = np.zeros(self.num_envs)
            ended = np.zeros((2, self.num_envs), np.bool_)
            result = (observations, rewards, ended[0], ended[1], infos)
        elif self._pending == "step":
            result = self.step_wait(timeout)
        else:
            self._check_idle("recv")
            missing = [i for i in range(self.num_envs) if i not in (self._parts or ())]
            raise NoAsyncCallError(
                f"recv: waits for all {self.num_envs} environments, of which {missing} are not in flight; send() them "
                "first",
                "recv",
            )
        result[4]["env_id"] = self.env_ids
        result[4]["_env_id"] = np.ones(self.num_envs, np.bool_)
        return result

    def _rows_of(self, actions: Any, count: int) -> Iterator[Any]:
        if isinstance(actions, np.ndarray | dict | tuple):
            return iterate(batch_space(self.single_action_space, max(count, 1)), actions)
        return iter(actions)


def _checked_ids(env_ids: Any, num_envs: int) -> list[int]:
    ids = np.asarray(env_ids)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise TypeError(f"send(): env_ids must be integers, the numbers of the environments, got {env_ids!r}")
    listed = ids.tolist()
    outside = [i for i in listed if not 0 <= i < num_envs]
    if outside:
        raise ValueError(f"send: there are no environments {outside}; their ids are 0 to {num_envs - 1}")
    if len(set(listed)) != len(listed):
        twice = sorted({i for i in listed if listed.count(i) > 1})
        raise ValueError(f"send: environments {twice} came twice; send each at most once until recv() has returned it")
    return listed
