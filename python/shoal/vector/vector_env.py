"""The vector environment that users hold: Gymnasium's interface over Shoal's engine."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector.utils import batch_space

from shoal import _core
from shoal.vector import infos as info_batches
from shoal.vector.seeding import Seeds, reset_mask_of, seeds_of
from shoal.vector.worker import EnvGroup

__all__ = ["VectorEnv"]

_RESERVED_CALLS = frozenset({"reset", "step", "close"})


class VectorEnv(gymnasium.vector.VectorEnv):
    """`num_envs` environments that are reset and stepped together. Made by `shoal.make_vec`.

    Observations are arrays with one row an environment (dicts and tuples of arrays for Dict and Tuple spaces), rewards
    float64 of shape (num_envs,), `terminated` and `truncated` bool of that shape, infos a dict of arrays with masks, all
    as `gymnasium.vector` defines them. With `copy=False` the observations are views of memory that the next reset or
    step overwrites.

    An exception of an environment is raised here as it was there, with the environment, the action and the worker's
    traceback. After it, and after `shoal.WorkerDied`, only close() is of use.

    Threads: one at a time.
    """

    def __init__(
        self,
        engine: _core.VectorEnv,
        description: dict[str, Any],
        *,
        autoreset_mode: gymnasium.vector.AutoresetMode,
        copy: bool = True,
        timeout: float | None = None,
        seed: Seeds = None,
        group: EnvGroup | None = None,
        native: bool = False,
    ) -> None:
        self._engine = engine
        self._group = group  # the environments themselves, where they live in this process
        self._native = native
        self.num_envs = engine.num_envs
        self.num_workers = engine.num_workers
        self.copy = copy
        self.timeout = timeout
        self.autoreset_mode = autoreset_mode
        self.metadata = {**description["metadata"], "autoreset_mode": autoreset_mode}
        self.render_mode = description["render_mode"]
        self.spec = description["spec"]
        self.single_observation_space = description["observation_space"]
        self.single_action_space = description["action_space"]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._io = _core.BatchIo(engine, self.single_observation_space, self.single_action_space, copy)
        self._first_seed = seed
        self._pending: str | None = None
        self._was_reset = False

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment, or in those that `options["reset_mask"]` selects.

        Args:
            seed: environment i gets `seed + i`, or element i of a sequence; None leaves its generator as it is.
            options: given to every environment's reset, without the mask.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(self, seed: Seeds = None, options: dict[str, Any] | None = None) -> None:
        self._check_idle("reset_async")
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        seeds = seeds_of(seed, self.num_envs)
        mask = None
        if options is not None and "reset_mask" in options:
            options = dict(options)
            mask = reset_mask_of(options.pop("reset_mask"), self.num_envs)
        self._send_reset_arguments(options, seeds)
        self._io.reset_async(seeds.values, None if mask is None else mask.view(np.uint8))
        self._pending = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        self._check_pending("reset")
        observations, extra = self._wait(self._io.reset_wait, timeout)
        self._was_reset = True
        return observations, self._infos(extra) if extra else {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps every environment with its action; what has ended is reset as `autoreset_mode` says."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        if self._pending is not None or not self._was_reset or self.closed:
            self._check_idle("step_async")
            raise ResetNeeded("Cannot call step() before reset() has been called.")
        self._io.step_async(actions)
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._pending != "step" or self.closed:
            self._check_pending("step")
        observations, rewards, terminated, truncated, extra = self._wait(self._io.step_wait, timeout)
        return observations, rewards, terminated, truncated, self._infos(extra) if extra else {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The result of method `name` of every environment, or the attribute `name` where it cannot be called."""
        if name in _RESERVED_CALLS:
            raise ValueError(f"call({name!r}) would step around the vector environment: use its own {name}()")
        self._check_idle("call")
        results = self._ask_all("call", [(name, args, kwargs)] * self.num_workers)
        return tuple(value for part in results for value in part)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute `name` of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets the attribute `name`: to element i in environment i for a list or tuple, else to `values` in all."""
        self._check_idle("set_attr")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"Values must be a list or tuple with length equal to the number of environments. Got `{len(values)}` "
                f"values for {self.num_envs} environments."
            )
        self._ask_all("set_attr", [(name, values[lo:hi]) for lo, hi in self._ranges()])

    def render(self) -> tuple[Any, ...]:
        """What every environment renders."""
        return self.call("render")

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:
        """The environments' generators (copies, where they live in other processes)."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:
        return self.get_attr("np_random_seed")

    def stats(self) -> dict[str, Any]:
        """What the engine has done so far: batches, waiting, and for each worker its pid, steps, busy time and restarts."""
        return self._engine.stats()

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments and ends the workers. Called by close(), once."""
        self._pending = None
        try:
            if self._group is not None:
                self._group.close()
        finally:
            self._engine.close()

    def __del__(self) -> None:
        if hasattr(self, "_io") and not self.closed:
            self.close()

    def _wait(self, wait: Any, timeout: float | None) -> Any:
        try:
            result = wait(self.timeout if timeout is None else timeout)
        except (TimeoutError, KeyboardInterrupt):
            raise  # still under way
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        return result

    def _infos(self, extra: int) -> dict[str, Any]:
        entries: list[info_batches.Entry] = []
        final_observations: dict[int, Any] = {}
        if extra & _core.EXTRA_INFOS:
            entries = self._io.infos()
            if self._group is None:
                entries = info_batches.decode(entries)
        if extra & _core.EXTRA_FINAL:
            rows = np.flatnonzero(self._io.has_final())
            final_observations = {int(row): self._io.final_observation(int(row)) for row in rows}
        batched = info_batches.batch(self, entries, final_observations)
        if extra & _core.EXTRA_FAULT:
            batched = info_batches.add_faults(self, batched, self._io.fault())
        return batched

    def _send_reset_arguments(self, options: dict[str, Any] | None, seeds: Any) -> None:
        if options is None and not seeds.large:
            return
        if self._native:
            if options:
                raise ValueError(f"native environments take no reset options but 'reset_mask', got {options!r}")
            if seeds.large:
                raise ValueError(f"native environments take seeds from 0 to 2**64 - 1, got {seeds.large}")
            return
        arguments = [(options, seeds.large and seeds.large[lo:hi]) for lo, hi in self._ranges()]
        self._ask_all("set_reset_arguments", arguments)

    def _ask_all(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Calls `method` of every worker's EnvGroup."""
        if self._group is not None:
            try:
                return [getattr(self._group, method)(*arguments[0])]
            finally:
                self._io.environments_changed()
        if self._native:
            raise AttributeError(
                f"native environments have no attributes to {method.replace('_', ' ')}: {arguments[0][0]!r}"
            )
        replies = []
        for worker, own in enumerate(arguments):
            message = cloudpickle.dumps((method, own))
            replies.append(pickle.loads(self._engine.request(worker, message, self.timeout)))
        return replies

    def _ranges(self) -> list[tuple[int, int]]:
        """The rows of every worker."""
        if self._group is not None:
            return [(0, self.num_envs)]
        workers = self._engine.stats()["workers"]
        return [(w["first_env"], w["first_env"] + w["num_envs"]) for w in workers]

    def _check_open(self, call: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")

    def _check_idle(self, call: str) -> None:
        self._check_open(call)
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"Calling `{call}` while waiting for a pending call to `{self._pending}` to complete.", self._pending
            )

    def _check_pending(self, call: str) -> None:
        self._check_open(call)
        if self._pending != call:
            raise NoAsyncCallError(f"Calling `{call}_wait` without any prior call to `{call}_async`.", call)
