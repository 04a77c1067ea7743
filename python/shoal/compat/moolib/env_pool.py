"""What stands in for moolib's EnvPool: batches of environments over one pool of workers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.compat.arguments import policy_of, positive, worker_options
from shoal.compat.moolib.single_env import SingleEnv
from shoal.reprs import never_raises
from shoal.vector.faults import FaultPolicy
from shoal.vector.infos import is_away
from shoal.vector.make import make_vec
from shoal.vector.options import WorkerOptions
from shoal.vector.pool import WorkerPool
from shoal.vector.vector_env import VectorEnv

if TYPE_CHECKING:
    import torch

__all__ = ["EnvPool", "EnvStepperFuture"]

_WHOLE = "a batch has a row of each of its environments at every step"


class EnvStepperFuture:
    """What `EnvPool.step()` returns."""

    def __init__(self, batch: _Batch, begins: bool) -> None:
        self._batch = batch
        self._begins = begins
        self._result: dict[str, torch.Tensor] | None = None
        self._failure: BaseException | None = None

    @never_raises
    def __repr__(self) -> str:
        state = "failed" if self._failure is not None else "done" if self._result is not None else "not taken yet"
        return f"<EnvStepperFuture of {self._batch.size} environments, {state}>"

    def result(self, timeout: float | None = None) -> dict[str, torch.Tensor]:
        """Waits for the step. A second call returns or raises the same.

        Args:
            timeout: seconds; by default the EnvPool's.

        Returns:
            The parts of the observations by their keys, or "state" where they are no dicts, of shape (batch_size, …) and in
            the environments' own dtypes; "done", bool, and "reward", float32, both of shape (batch_size,). Where "done" is
            True the observation is the first of the next episode. The tensors are the caller's own.

        Raises:
            TimeoutError: the step is still under way: call again.
            shoal.WorkerDied: a worker died.
            what an environment raised.
        """
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            try:
                self._result = self._batch.wait(self._begins, timeout)
            except BaseException as failure:
                if not self._batch.is_under_way():
                    self._failure = failure
                raise
        return self._result

    def done(self) -> bool:
        """Whether result() has returned or raised what came of the step."""
        return self._result is not None or self._failure is not None


class _Batch:
    """Environments that are stepped together, and the future of their last step."""

    def __init__(self, vector_env: VectorEnv) -> None:
        self._vector_env = vector_env
        self._last: EnvStepperFuture | None = None
        self._away = np.zeros(vector_env.num_envs, np.bool_)  # lost, and not there again yet

    @property
    def size(self) -> int:
        return len(self._away)

    def begin(self, actions: np.ndarray, index: int) -> EnvStepperFuture:
        begins = self._last is None
        if begins:
            self._vector_env.reset_async()
        elif self._last is not None and self._last.done():
            self._vector_env.step_async(actions)
        else:
            raise RuntimeError(f"EnvPool.step({index}, …): this batch is under way, take its last result() first")
        self._last = EnvStepperFuture(self, begins)
        return self._last

    def wait(self, begins: bool, timeout: float | None) -> dict[str, torch.Tensor]:
        from torch import from_numpy

        if begins:
            observations, _ = self._vector_env.reset_wait(timeout)
            rewards, ended = np.zeros(len(self._away)), np.zeros(len(self._away), np.bool_)
        else:
            observations, rewards, terminated, truncated, _ = self._vector_env.step_wait(timeout)
            ended = terminated | truncated
        away = is_away(self._vector_env._io.fault())
        done = ended | away | self._away  # an episode begins in the row that is there again
        self._away = done & away
        parts = {**observations, "done": done, "reward": rewards.astype(np.float32)}
        return {key: from_numpy(part) for key, part in parts.items()}

    def is_under_way(self) -> bool:
        return self._vector_env._pending is not None

    def close(self) -> None:
        self._vector_env._pending = None  # a step that is under way is waited for, without a warning
        self._vector_env.close()


class EnvPool:
    """`num_batches` batches of `batch_size` environments each, over `num_processes` worker processes, which all batches
    share: while a policy computes for one of them, the workers step the others.

    Args:
        create_env: a function that returns an environment of gym's interface (`reset() -> obs`, `step() -> obs, reward,
            done, …`) or Gymnasium's. Lambdas and closures are fine. Observations are arrays or CPU tensors of numbers, or
            dicts of these.
        num_processes: worker processes, at most one for each environment of a batch.
        batch_size: environments of a batch.
        num_batches: batches.
        timeout: seconds that result() waits; None: for ever.
        on_fault: "raise" or "restart", or a `shoal.FaultPolicy` of these. A restart ends the episode: "done" is True in the
            row until the new environment's first observation is in it, and before that the observation is the last one.
        worker: how worker processes are set up.

    Threads: one at a time for each batch; the batches may belong to different threads.
    """

    def __init__(
        self,
        create_env: Callable[[], Any],
        num_processes: int,
        batch_size: int,
        num_batches: int,
        *,
        timeout: float | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker: WorkerOptions | None = None,
    ) -> None:
        if not callable(create_env):
            raise TypeError(f"EnvPool(create_env=…) takes a function that returns an environment, got {create_env!r}")
        count = positive(num_processes, "EnvPool(num_processes=…)")
        self._size = positive(batch_size, "EnvPool(batch_size=…)")
        batches = positive(num_batches, "EnvPool(num_batches=…)")
        policy = policy_of(on_fault, "EnvPool", _WHOLE)
        options = worker_options(worker, "EnvPool", _WHOLE)
        self._batches: list[_Batch] = []
        self._pool = WorkerPool(min(count, self._size), worker=options)
        try:
            for _ in range(batches):
                vector_env = make_vec(
                    functools.partial(SingleEnv, create_env),
                    self._size,
                    autoreset_mode="same_step",
                    timeout=timeout,
                    on_fault=policy,
                    pool=self._pool,
                )
                self._batches.append(_Batch(vector_env))
        except BaseException:
            self.close()
            raise

    def step(self, batch_index: int, action: torch.Tensor | np.ndarray) -> EnvStepperFuture:
        """Steps a batch, and does not wait. A batch's first step is its environments' first reset, whatever the action.

        Args:
            batch_index: from 0 to num_batches - 1.
            action: whole numbers of shape (batch_size,), of any device. An environment gets an int.

        Raises:
            RuntimeError: for other actions, an index that there is not, a batch whose last result nobody has taken, and after
                close(). Nothing was stepped.
            shoal.WorkerDied: a worker died meanwhile.
        """
        actions = self._whole_numbers(action)
        index = operator.index(batch_index)
        if not self._batches:
            raise RuntimeError("EnvPool.step(): it is closed")
        if not 0 <= index < len(self._batches):
            raise RuntimeError(f"EnvPool.step(): there is no batch {index}, they are 0 to {len(self._batches) - 1}")
        return self._batches[index].begin(actions, index)

    def close(self) -> None:
        """Closes the environments and ends the workers; moolib's does so when the last reference to it is gone, as this
        one does as well. A second time does nothing."""
        batches, self._batches = self._batches, []
        try:
            for batch in batches:
                batch.close()
        finally:
            self._pool.close()

    def __enter__(self) -> EnvPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @never_raises
    def __repr__(self) -> str:
        if not self._batches:
            return "<EnvPool, closed>"
        return (
            f"<EnvPool of {len(self._batches)} batches of {self._size} environments, {self._pool.num_workers} workers>"
        )

    def _whole_numbers(self, action: Any) -> np.ndarray:
        values = np.asarray(action.detach().cpu() if hasattr(action, "detach") else action)
        if values.dtype.kind not in "iu" or values.shape != (self._size,):
            raise RuntimeError(
                f"EnvPool.step() takes whole numbers of shape ({self._size},), one for each environment of the batch, got "
                f"{values.dtype} of shape {values.shape}"
            )
        return values.astype(np.int64, copy=False)
