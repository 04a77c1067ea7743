"""What EnvPool's `make` returns: rows with the numbers of their environments, single spaces, infos without masks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.reprs import never_raises
from shoal.vector.async_env import AsyncVectorEnv
from shoal.vector.infos import is_away
from shoal.vector.vector_env import VectorEnv

__all__ = ["EnvPool", "EnvSpec"]


@dataclass
class EnvSpec:
    """What an EnvPool is made of. Programs may write into it, as into the peer's; it changes nothing.

    Attributes:
        id: the task, or the name of a class or function.
        config: the arguments of `make`, as attributes.
        observation_space, action_space: of a single environment.
        reward_threshold: the reward at which the task counts as solved, or None.
    """

    id: str
    config: SimpleNamespace
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    reward_threshold: float | None

    @property
    def gymnasium_observation_space(self) -> gymnasium.Space[Any]:
        return self.observation_space

    @property
    def gymnasium_action_space(self) -> gymnasium.Space[Any]:
        return self.action_space


class EnvPool(gymnasium.vector.VectorEnv[Any, Any, Any], gymnasium.Env[Any, Any]):  # type: ignore[misc]  # they differ in what np_random_seed may be
    """`num_envs` environments, of which `recv` returns `batch_size` at a time. Made by `shoal.compat.envpool.make`.

    Observations have one row an environment; rewards are float32 and `terminated` and `truncated` bool, all of shape (rows,).
    `infos["env_id"]` and `infos["elapsed_step"]` are int32 of that shape: the rows' environments, and the steps of their
    episodes so far (of their games, where a lost life ends an episode). What environments say in their own infos is arrays, with a mask `infos["_key"]` only where some said
    nothing. An environment whose episode has ended is reset by its next step, as in EnvPool.

    Attributes:
        observation_space, action_space: of a single environment, as `single_observation_space` and `single_action_space`.
        vector_env: the `shoal.VectorEnv` underneath, with `stats()`, `health()`, `call()` and `set_attr()`.
        config: the arguments of `make`.

    Threads: one at a time.
    """

    is_vector_env = True

    def __init__(
        self,
        vector_env: VectorEnv,
        task_id: str,
        config: Mapping[str, Any],
        reset_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.vector_env = vector_env
        self._reset_options = dict(reset_options or {})  # of every reset that the caller asks for
        self.config = dict(config)
        self.num_envs = vector_env.num_envs
        self.single_observation_space = self.observation_space = vector_env.single_observation_space
        self.single_action_space = self.action_space = vector_env.single_action_space
        self.metadata = vector_env.metadata
        self.render_mode = vector_env.render_mode
        self.spec: Any = EnvSpec(
            task_id,
            SimpleNamespace(**self.config),
            self.observation_space,
            self.action_space,
            self.config["reward_threshold"],
        )
        self._count = vector_env.num_envs  # num_envs may be assigned, as older EnvPools' users do
        self._mode = vector_env.autoreset_mode
        self._elapsed = np.zeros(self._count, np.int32)
        self._begins = np.ones(self._count, np.bool_)  # whether the next row is the first of an episode
        self._sent: list[np.ndarray] = []  # environments in the order of their rows, where all are stepped together

    def __len__(self) -> int:
        return self._count

    @property
    def all_env_ids(self) -> np.ndarray:
        """0 to num_envs - 1, int32."""
        return np.arange(self._count, dtype=np.int32)

    @property
    def is_async(self) -> bool:
        """Whether recv() returns fewer than all environments."""
        return self.vector_env.batch_size != self._count

    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment, and throws away what is in flight. Where recv() returns fewer than all
        environments, so does this: the first `batch_size` that are ready, while the others are still reset.

        Args:
            env_id: in these alone, whose rows are then returned, in this order; also `options["reset_mask"]`. None of the
                environments may be in flight then.
            seed: as Gymnasium has it: `seed + i` for environment i, or a sequence. None leaves the generators as they are.
            options: given to every environment's reset, without the mask.
        """
        arguments = {**self._reset_options, **(options or {})}
        ids = self.all_env_ids
        if env_id is not None:
            if "reset_mask" in arguments:
                raise ValueError("reset() takes env_id or options['reset_mask'], not both")
            ids = _ids(env_id)
            arguments["reset_mask"] = self._mask(ids)
        elif "reset_mask" in arguments:
            ids = np.flatnonzero(arguments["reset_mask"]).astype(np.int32)
        elif not self.is_async and self.vector_env.in_flight == self._count:
            self.vector_env.recv()
        elif self.is_async:
            if self.vector_env.in_flight:
                self.vector_env.discard()  # type: ignore[attr-defined]  # an AsyncVectorEnv has it
            self._begin(seed, arguments)
            return self.recv(reset=True)  # type: ignore[no-any-return]  # observations and infos
        observations, infos = self.vector_env.reset(seed=seed, options=arguments or None)
        self._sent = []
        self._elapsed[ids] = 0
        self._begins[ids] = False
        infos = self._infos(infos, self.all_env_ids, self._elapsed.copy())
        if len(ids) == self._count and np.array_equal(ids, self.all_env_ids):
            return observations, infos
        return _rows(self.observation_space, observations, ids), _info_rows(infos, ids)

    def async_reset(self) -> None:
        """Resets all environments and does not wait: recv() returns their first observations, with reward 0."""
        self._begin(None, self._reset_options)

    def _begin(self, seed: Any, options: dict[str, Any]) -> None:
        self.vector_env.async_reset(seed, options or None)
        self._begins[:] = True
        self._sent = [self.all_env_ids]

    def send(self, action: Any, env_id: Any = None) -> None:
        """Steps environments, each with its action, and does not wait.

        Args:
            action: one an environment; or a dict of "action" and "env_id".
            env_id: the environments; by default all, in order.
        """
        action, env_id = _of_dict(action, env_id, self.action_space)
        ids = self.all_env_ids if env_id is None else _ids(env_id)
        if env_id is None and not isinstance(
            self.vector_env, AsyncVectorEnv
        ):  # whose default is the last result's order
            self.vector_env.send(action)
        else:
            self.vector_env.send(action, ids.astype(np.int64))
        self._sent.append(ids)

    def recv(self, reset: bool = False, return_info: bool = True, *, timeout: float | None = None) -> Any:
        """The next `batch_size` results: observations, rewards, terminated, truncated, infos.

        Where all environments are stepped together, the rows are in the order in which they were sent; otherwise in the
        order in which they were ready.

        Args:
            reset: True returns observations and infos only, as reset() does.
            timeout: seconds until a TimeoutError that names the environments which are late; they stay in flight.
        """
        if not return_info:
            raise ValueError("recv(return_info=False): infos are always returned, as in EnvPool 1; leave it out")
        observations, rewards, terminated, truncated, infos = self.vector_env.recv(timeout)
        ids = infos["env_id"]
        ended = terminated | truncated
        elapsed = np.where(self._begins[ids], 0, self._elapsed[ids] + 1).astype(np.int32)
        self._begins[ids] = ended if self._mode is AutoresetMode.NEXT_STEP else False
        if self._mode is AutoresetMode.SAME_STEP:
            elapsed[ended] = 0
        # A new environment begins with one of the next rows.
        self._begins[ids[is_away(self.vector_env._io.fault())]] = True
        self._elapsed[ids] = elapsed
        infos = self._infos(infos, ids.astype(np.int32), elapsed)
        rewards = rewards.astype(np.float32)
        order = None if self.is_async else np.concatenate(self._sent)
        self._sent = []
        if order is not None and not np.array_equal(order, ids):
            rows = np.argsort(ids)[order]
            observations, infos = _rows(self.observation_space, observations, rows), _info_rows(infos, rows)
            rewards, terminated, truncated = rewards[rows], terminated[rows], truncated[rows]
        if reset:
            return observations, infos
        return observations, rewards, terminated, truncated, infos

    def step(self, action: Any, env_id: Any = None) -> Any:
        """send() and recv().

        Raises:
            ValueError: for some of the environments, where all are stepped together.
        """
        action, env_id = _of_dict(action, env_id, self.action_space)
        if env_id is not None and not self.is_async:
            count = len(_ids(env_id))
            if count < self._count:
                raise ValueError(
                    f"step() of {count} of {self._count} environments: all of these are stepped together. "
                    f"make(…, batch_size={max(count, 1)}) steps them one by one and returns {max(count, 1)} at a time"
                )
        self.send(action, env_id)
        return self.recv()

    def seed(self, seed: Any = None) -> None:
        """Does nothing but warn, as EnvPool's."""
        warnings.warn(f"seed({seed!r}) changes nothing: give make(…, seed=…) or reset(seed=…)", stacklevel=2)

    def render(self, env_ids: Any = None, camera_id: None = None) -> Any:
        """Frames of shape (len(env_ids), height, width, 3), uint8; None in "human" mode, in which each has its window.

        Args:
            env_ids: a number or numbers; by default that of make(render_env_id=…), or environment 0.
            camera_id: None: cameras are arguments of environments.
        """
        if camera_id is not None:
            raise ValueError(
                f"render(camera_id={camera_id!r}): cameras are arguments of environments: make(…, camera_id=…)"
            )
        if self.render_mode is None:
            raise RuntimeError("render() needs make(…, render_mode='rgb_array') or 'human'")
        ids = _ids(self.config.get("render_env_id", 0) if env_ids is None else env_ids)
        self._mask(ids)
        frames = self.vector_env.call("render")
        return None if self.render_mode == "human" else np.stack([frames[i] for i in ids])

    def xla(self) -> NoReturn:
        """Raises RuntimeError: there is none, as in an EnvPool without JAX."""
        raise RuntimeError("xla(): these environments are no XLA program; use step(), or send() and recv()")

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments: `shoal.VectorEnv.close(**kwargs)`."""
        self.vector_env.close(**kwargs)

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    @never_raises
    def __repr__(self) -> str:
        return f"EnvPool({self.spec.id!r}, {', '.join(f'{name}={value!r}' for name, value in self.config.items())})"

    def _mask(self, ids: np.ndarray) -> np.ndarray:
        outside = [int(i) for i in ids if not 0 <= i < self._count]
        if outside or not len(ids):
            raise ValueError(f"env_id: there are no environments {outside}; their ids are 0 to {self._count - 1}")
        mask = np.zeros(self._count, np.bool_)
        mask[ids] = True
        return mask

    def _infos(self, infos: dict[str, Any], ids: np.ndarray, elapsed: np.ndarray) -> dict[str, Any]:
        return {
            "elapsed_step": elapsed,  # what environments say of it themselves is so
            **_without_full_masks(infos),
            "env_id": ids,
            "players": {"env_id": ids},
        }


def _ids(env_id: Any) -> np.ndarray:
    ids = np.atleast_1d(np.asarray(env_id))
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"env_id takes the numbers of environments, got {env_id!r}")
    return ids.astype(np.int32)


def _of_dict(action: Any, env_id: Any, space: gymnasium.Space[Any]) -> tuple[Any, Any]:
    """EnvPool's other way of naming environments: {"action": …, "env_id": …}."""
    own = space.spaces if isinstance(space, gymnasium.spaces.Dict) else ()
    if not isinstance(action, Mapping) or "env_id" in own:
        return action, env_id
    parts = {key: part for key, part in action.items() if key not in ("env_id", "players.env_id")}
    return (parts if own else parts.get("action", action)), action.get("env_id") if env_id is None else env_id


def _without_full_masks(infos: Mapping[str, Any]) -> dict[str, Any]:
    plain = {}
    for key, value in infos.items():
        if key.startswith("_") and key[1:] in infos and isinstance(value, np.ndarray) and value.all():
            continue
        plain[key] = _without_full_masks(value) if isinstance(value, dict) else value
    return plain


def _rows(space: gymnasium.Space[Any], batch: Any, rows: np.ndarray) -> Any:
    """Some rows of a batch of observations of this space."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _rows(part, batch[key], rows) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_rows(part, own, rows) for part, own in zip(space.spaces, batch, strict=True))
    return batch[rows] if isinstance(batch, np.ndarray) else tuple(batch[i] for i in rows)


def _info_rows(infos: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    return {key: _info_rows(value, rows) if isinstance(value, Mapping) else value[rows] for key, value in infos.items()}
