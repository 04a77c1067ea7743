"""`stable_baselines3.common.vec_env.SubprocVecEnv` on Shoal's engine: environments in worker processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import SubprocVecEnv as PeersSubprocVecEnv
from stable_baselines3.common.vec_env import VecEnv

from shoal.compat.arguments import factories_of, policy_of, positive, rows_of, worker_options
from shoal.compat.closing import HoldsEnvironments
from shoal.compat.processes import Process
from shoal.compat.sb3.rows import Rows, Said
from shoal.compat.sb3.slots import SlotGroup
from shoal.compat.starting import start_together
from shoal.reprs import never_raises
from shoal.unknown_arguments import named_when_unknown
from shoal.vector.factories import recipe_of
from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = ["SubprocVecEnv"]

_CUT = "TimeLimit.truncated"
_LAST = "terminal_observation"

_WHOLE = "a learner takes a row of every environment at every step"


@named_when_unknown
class SubprocVecEnv(HoldsEnvironments, PeersSubprocVecEnv):
    """Steps environments in worker processes, one for each.

    Takes the place of `stable_baselines3.common.vec_env.SubprocVecEnv`, and is one: its arguments, methods and results.
    Unlike it:

    - observations and actions cross in shared memory, as arrays of the spaces' own dtypes; rewards are float64 always;
    - an environment's exception is raised here, with its environment and the worker's traceback; a worker that dies is a
      `shoal.WorkerDied`, or a new one with `on_fault="restart"`; close() works then and always;
    - workers see no GPU unless `worker=shoal.WorkerOptions(gpu="own")` says so, and have one thread each for OpenMP and kin;
    - no `if __name__ == "__main__":` is needed, and a program's own daemonic processes may have one.

    Attributes:
        start_method: as it was given.
    """

    reset_infos: list[dict[str, Any]]

    def __init__(
        self,
        env_fns: list[Callable[[], gymnasium.Env]],
        start_method: str | None = None,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker: WorkerOptions | None = None,
    ) -> None:
        """See the peer's; what comes by keyword alone is Shoal's own.

        Args:
            env_fns: a function for each environment. Lambdas, closures and what `__main__` defines are fine.
            start_method: "forkserver", which is also what None means, "spawn" or "fork". "fork" gives way to "forkserver",
                with a warning that names the cause, where it would break.
            num_workers: so many processes share the environments; by default each has one of its own. As many as there are
                CPUs is fastest for environments that compute; one each lets those that wait do so together.
            on_fault: "restart" makes a new environment in the place of one that was lost (its process killed, or an
                exception): its episode ends as one cut short, with `info["fault"]`, a `shoal.Fault`. Where the last reset had
                seeds, the new one's follows from its row's. "raise" raises. A `shoal.FaultPolicy` also sets deadlines and limits.
            worker: how worker processes are set up.

        Raises:
            ValueError: for an unknown start method, as the peer's; `shoal.SpacesDiffer` for environments with other action
                spaces or other shapes or dtypes of observations.
            TypeError: for environments where functions are needed, and for what cannot be sent to a worker.
        """
        factories = factories_of(env_fns, type(self).__name__, "shoal.compat.sb3.make_vec_env(id, 4)")
        self.start_method = start_method
        self._tells_options = False  # True while the environments may hold some that no reset has taken
        self._envs = _started(factories, start_method, num_workers, on_fault, worker)
        try:
            VecEnv.__init__(self, len(factories), self._envs.single_observation_space, self._envs.single_action_space)
        except BaseException:
            self._envs.close(terminate=True)
            raise

    @property
    def waiting(self) -> bool:
        """Whether a step is under way."""
        return self._envs.is_stepping

    @property
    def closed(self) -> bool:
        return self._envs.closed

    @property
    def processes(self) -> list[Process]:
        """The worker processes."""
        pids = [worker["pid"] for worker in self._envs.stats()["workers"]]
        return [Process(pid, f"Worker<SubprocVecEnv>-{i}", True) for i, pid in enumerate(pids)]

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.num_envs} environments{', closed' if self.closed else ''}>"

    @property
    def remotes(self) -> NoReturn:
        raise AttributeError(_NO_PIPES.format("remotes"))

    @property
    def work_remotes(self) -> NoReturn:
        raise AttributeError(_NO_PIPES.format("work_remotes"))

    def reset(self) -> Any:
        envs = self._envs
        if len(self._options) < self.num_envs:  # of more the peer takes the first
            raise ValueError(
                f"reset(): set_options() got {len(self._options)} dicts for {self.num_envs} environments; it takes a dict for all, "
                "or one for each"
            )
        envs.drop_step()
        if self._tells_options or any(self._options):
            self._tells_options = True
            envs.set_reset_options(self._options)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        result: Any = envs.reset(seed=self._seeds)
        self._tells_options = False
        observations, said = result
        self._reset_seeds()
        self._reset_options()
        if said:
            self._keep_reset_infos(said)
            observations = self._renewed(observations, said)
        return observations

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """As the peer's. After Ctrl-C in it every call goes on: it waits for the step, and drops what comes of it."""
        try:
            self.step_async(actions)
            return self.step_wait()
        except KeyboardInterrupt:
            self._envs.note_interrupt()
            raise

    def step_async(self, actions: np.ndarray) -> None:
        self._envs.step_async(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        result: Any = self._envs.step_wait()
        observations, rewards, terminated, truncated, said = result
        if not said:  # then no episode has ended
            return observations, rewards, terminated, [{_CUT: False} for _ in range(self.num_envs)]
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(dones).tolist():
            self.reset_infos[row] = {}
        for row, is_final, info in said.infos:
            if dones[row] and not is_final:
                self.reset_infos[row] = info
            else:
                infos[row] = info
        for info, is_cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info[_CUT] = is_cut
        for row, last in said.finals.items():
            infos[row][_LAST] = last
        for row, fault in said.faults.items():
            infos[row] = {"fault": fault, _CUT: True, _LAST: _row_of(observations, row)}
        return self._renewed(observations, said), rewards, dones, infos

    def close(self) -> None:
        self._envs.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is `rgb_array` to obtain images.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self.env_method("render")

    def has_attr(self, attr_name: str) -> bool:
        return all(self._of_each(None, "has_attr", "has", attr_name))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return self._of_each(indices, "get_attr", "get", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets it on the outermost wrapper, as the peer does."""
        self._of_each(indices, "set_attr", "set", attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return self._of_each(indices, "env_method", "call_method", method_name, method_args, method_kwargs)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Whether it has a wrapper of this class, or of one of a tuple of them."""
        return self._of_each(indices, "env_is_wrapped", "is_wrapped", wrapper_class)

    def stats(self) -> dict[str, Any]:
        """See `shoal.VectorEnv.stats()`."""
        return self._envs.stats()

    def health(self) -> list[dict[str, Any]]:
        """See `shoal.VectorEnv.health()`."""
        return self._envs.health()

    def _of_each(self, indices: Any, who: str, method: str, *arguments: Any) -> list[Any]:
        rows = rows_of(indices, self.num_envs, f"{type(self).__name__}.{who}()")
        return self._envs.of_rows(rows, method, *arguments)

    def _keep_reset_infos(self, said: Said) -> None:
        for row, _, info in said.infos:
            self.reset_infos[row] = info

    def _renewed(self, observations: Any, said: Said) -> Any:
        """The observations, with an episode begun in every environment that is in the place of a lost one."""
        while said and said.faults:
            observations, said = self._envs.renew(said.faults)
            if said:
                self._keep_reset_infos(said)
        return observations


_NO_PIPES = (
    "SubprocVecEnv has no {}: its environments are reached through shared memory, not through pipes. What they were asked by "
    "pipe is asked by env_method(), get_attr(), set_attr() and env_is_wrapped()"
)


def _row_of(observations: Any, row: int) -> Any:
    """A copy of one environment's observation."""
    if isinstance(observations, dict):
        return {key: _row_of(part, row) for key, part in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_row_of(part, row) for part in observations)
    return observations[row].copy()


def _started(
    factories: list[Callable[[], Any]],
    start_method: str | None,
    num_workers: int | None,
    on_fault: str | FaultPolicy,
    worker: WorkerOptions | None,
) -> Rows:
    if start_method is not None and start_method not in multiprocessing.get_all_start_methods():
        raise ValueError(f"cannot find context for {start_method!r}")
    options = worker_options(worker, "SubprocVecEnv", _WHOLE)
    faults = policy_of(on_fault, "SubprocVecEnv", _WHOLE).settings(options.start_timeout)
    workers = (
        len(factories)
        if num_workers is None
        else min(len(factories), positive(num_workers, "SubprocVecEnv(num_workers=…)"))
    )
    return start_together(
        Rows,
        recipe_of(factories, None, {}),
        workers,
        start_method or "auto",
        AutoresetMode.SAME_STEP,
        faults,
        options,
        kind=SlotGroup,
        asks_for_fork="SubprocVecEnv(start_method='fork')",
        same_observations=False,
        imported_by=_imported_by,
    )


def _imported_by(factory: bytes) -> list[str]:
    """Stable-Baselines3, and torch with it, takes seconds to import: once is enough."""
    return ["stable_baselines3.common.monitor"] if b"stable_baselines3." in factory else []
