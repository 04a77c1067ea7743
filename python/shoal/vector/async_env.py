"""Vector environments whose environments are stepped one by one: `send()` some, `recv()` those that are ready."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np

from shoal import _core
from shoal.ipc import cloudpickling
from shoal.vector import infos as info_batches
from shoal.vector.action_parts import batch_of
from shoal.vector.episodes import options_text
from shoal.vector.seeding import CheckedSeeds, Seeds
from shoal.vector.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv"]

Result = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class AsyncVectorEnv(VectorEnv):
    """What `make_vec(…, batch_size=B)`, `cohorts=` and `pool=` return.

        envs.async_reset(seed=0)
        while …:
            observations, rewards, terminated, truncated, infos = envs.recv(timeout=10)
            envs.send(policy(observations), infos["env_id"])

    An environment is *in flight* from `send` or `async_reset` until `recv` returns its row. `recv` returns `batch_size`
    rows: the first that are ready, in the order in which they were, or with `cohorts=k` one cohort of environments after
    the other. What `recv` returns is the caller's for as long as it holds it: it views a block of shared memory that is
    used again when the last view of it is gone. A caller that keeps more than a few is given copies.

    Attributes:
        batch_size: rows of what recv() returns.
        env_ids: the environments of the last result's rows, int64; also `infos["env_id"]`.

    Synchronous calls: without batch_size and cohorts, `step(actions)` steps all environments as Gymnasium says. `reset`
    always does: it waits for what is in flight, throws it away, and returns all observations. `reset` of some
    (`options["reset_mask"]`), `reset_async`, `step_async` raise `AlreadyPendingCallError` while anything is in flight.
    `call`, `get_attr`, `set_attr` and `close` may be called at any time; workers answer between steps.
    """

    def __init__(self, engine: _core.VectorEnv, description: dict[str, Any], *, whole: bool, **common: Any) -> None:
        super().__init__(engine, description, **common)
        statistics = common.get("episode_statistics", False)
        self._io: _core.AsyncIo = _core.AsyncIo(  # type: ignore[assignment]  # has what is used of a BatchIo
            engine, self.single_observation_space, self.single_action_space, statistics
        )
        self._sends_actions = False  # _io does, with each order
        self._whole = whole  # step() is Gymnasium's
        self._all_rows = _rows(self.num_envs)
        self._batch_rows = _rows(engine.batch_size)
        self._has_id = np.ones(engine.batch_size, np.bool_)
        self._has_id.setflags(write=False)

    @property
    def batch_size(self) -> int:
        return int(self._engine.batch_size)

    @property
    def env_ids(self) -> np.ndarray:
        ids: np.ndarray = self._io.env_ids
        return ids

    @property
    def in_flight(self) -> int:
        """How many environments were sent and not received."""
        return int(self._engine.in_flight)

    def send(self, actions: Any, env_ids: Any = None) -> None:
        """Steps environments, each with its action, and does not wait.

        Args:
            actions: one an environment, in the order of env_ids.
            env_ids: integers; by default those of the last result.

        Raises:
            ValueError: for ids that are out of range or there twice, actions that do not fit.
            gymnasium.error.AlreadyPendingCallError: for environments in flight, and beyond max_in_flight.
            gymnasium.error.ResetNeeded: for environments that were never reset.
            shoal.WorkerDied: a worker died meanwhile.

        Whatever is raised, nothing was sent.
        """
        if self._pending is not None or self.closed:
            self._check_idle("send")
        if isinstance(actions, list) and isinstance(self.single_action_space, gymnasium.spaces.Dict):
            actions = batch_of(actions, self.single_action_space)
        self._io.send(actions, env_ids)

    def async_reset(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        """Resets all environments, or those of `options["reset_mask"]`, and does not wait: recv() returns their first
        observations, with reward 0.

        Raises:
            gymnasium.error.AlreadyPendingCallError: when one of them is in flight. Nothing was reset.
        """
        self._check_idle("async_reset")
        seeds, mask, options = self._reset_arguments_of(seed, options)
        if self.in_flight:
            selected = np.ones(self.num_envs, bool) if mask is None else mask
            self._check_resettable(selected)
        self._send_reset_arguments(options, seeds, mask)
        self._io.send_reset(seeds.values, None if mask is None else mask.view(np.uint8))
        self._note_reset(mask)
        if mask is None:
            self._received = []

    def recv(self, timeout: float | None = None) -> Result:
        """The next `batch_size` results.

        Args:
            timeout: seconds; by default make_vec's.

        Raises:
            TimeoutError: naming the environments that are late, and for how long. They stay in flight: call again.
            gymnasium.error.NoAsyncCallError: when too few are in flight for a batch.
            shoal.WorkerDied: a worker died.
            Exception: the infos cannot be unpickled or batched, as arrays of two shapes. The results are lost, their
                environments no longer in flight.
        """
        if self._pending is not None or self.closed:
            self._check_idle("recv")
        if not self._received:  # or a signal's handler kept the caller from it
            self._io.recv(self.timeout if timeout is None else timeout, self._received)
        observations, rewards, terminated, truncated, ids, extra = self._received[0]
        try:
            infos = self._infos(extra, self._batch_rows) if extra else {}
        except Exception as error:
            self._received = []  # the next call would raise the same
            if hasattr(error, "add_note"):
                error.add_note(f"recv(): the infos of environments {ids.tolist()}, whose results are lost")
            raise
        infos["env_id"] = ids
        infos["_env_id"] = self._has_id
        self._received = []  # from here to the caller no handler runs
        return observations, rewards, terminated, truncated, infos

    def step(self, actions: Any, env_ids: Any = None) -> Result:
        """send() and recv(); without batch_size and cohorts a step of all environments."""
        self._received = []
        if self._whole and env_ids is None and not self._engine.in_flight:
            return super().step(actions)
        self.send(actions, env_ids)
        return self.recv()

    def discard(self, timeout: float | None = None) -> None:
        """Waits for all that is in flight and throws it away."""
        self._check_idle("discard")
        self._received = []
        self._io.discard(self.timeout if timeout is None else timeout)

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.finish_interrupted(options)
        if "reset_mask" not in (options or {}):
            self._received = []
            if self._engine.in_flight:
                self._engine.require_open("reset")
                self.discard()
        observations, infos = super().reset(seed=seed, options=options)
        if not self._whole:
            infos["env_id"] = self.env_ids
            infos["_env_id"] = np.ones(self.num_envs, np.bool_)
        return observations, infos

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        self._check_idle("reset_async")
        seeds, mask, options = self._reset_arguments_of(seed, options)
        if self.in_flight:
            self._io.reset_async(None, None)  # raises
        self._send_reset_arguments(options, seeds, mask)
        self._begin_reset(seeds.values, mask)

    def _check_resettable(self, selected: np.ndarray) -> None:
        """Raises what send_reset() would, before anything is said to the workers."""
        self._engine.check_resettable(np.flatnonzero(selected).tolist())

    def _send_reset_arguments(
        self, options: dict[str, Any] | None, seeds: CheckedSeeds, mask: np.ndarray | None
    ) -> None:
        told = self._told_arguments
        # A mask alone is no options: none are a message less for each environment.
        super()._send_reset_arguments(options if mask is None else options or None, seeds, mask)
        self._told_arguments |= told and mask is not None  # those that it leaves out may still have theirs

    def _tell_reset_arguments(
        self, options: dict[str, Any] | None, seeds: CheckedSeeds, mask: np.ndarray | None
    ) -> None:
        """Each environment has its own, until it is reset: others may be under way with those of a call before."""
        ids = list(range(self.num_envs)) if mask is None else np.flatnonzero(mask).tolist()
        if self._native:
            self._io.set_reset_options(ids, options_text(options))
            return
        large = seeds.large
        own = [(options, large[i] if large else None) for i in ids]
        if self._group is not None:
            for i, arguments in zip(ids, own, strict=True):
                self._group.set_own_reset_arguments(i, arguments)
            return
        if options is None and large is None:
            self._io.tell_with_reset(ids, [])
            return
        pickled = [cloudpickling.dumps(arguments) for arguments in own]
        self._io.tell_with_reset(
            ids,
            [cloudpickling.dumps(("set_own_reset_arguments", one)) for one in zip(ids, pickled, strict=True)],
        )

    def _infos(self, extra: int, batch: gymnasium.vector.VectorEnv[Any, Any, Any] | None = None) -> dict[str, Any]:
        return super()._infos(extra, self._all_rows if batch is None else batch)

    def _info_entries(self) -> list[info_batches.Entry]:
        return [(slot, is_final, info) for slot, message in self._io.infos() for _, is_final, info in _entries(message)]


def _entries(message: bytes | tuple[Any, ...]) -> list[info_batches.Entry]:
    decoded = pickle.loads(message) if isinstance(message, bytes) else message
    entries: list[info_batches.Entry] = decoded[0] if isinstance(decoded, tuple) else decoded
    return entries


def _rows(count: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """What Gymnasium's batching of infos asks for a number of rows."""
    rows: gymnasium.vector.VectorEnv[Any, Any, Any] = gymnasium.vector.VectorEnv()
    rows.num_envs = count
    return rows
