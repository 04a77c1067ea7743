"""`gymnasium.vector.AsyncVectorEnv` on Shoal's engine: environments in worker processes."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import operator
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, logger
from gymnasium.error import AlreadyPendingCallError
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker
from gymnasium.vector.async_vector_env import AsyncVectorEnv as GymnasiumsAsyncVectorEnv
from gymnasium.vector.utils import create_empty_array

from shoal import _core
from shoal.compat.arguments import factories_of
from shoal.compat.gymnasium.exact_actions import step_exactly
from shoal.compat.gymnasium.observation_mode import (
    ObservationMode,
    check_mode,
    check_shared_memory,
    observation_spaces,
)
from shoal.compat.gymnasium.reset_options import without_mask
from shoal.compat.processes import Process
from shoal.errors import ForkRefused, RemoteTraceback, SpacesDiffer
from shoal.ipc.pickling import PicklingError
from shoal.ipc.sharing import Parcel
from shoal.vector.factories import Recipe, recipe_of
from shoal.vector.faults import FaultPolicy
from shoal.vector.options import WorkerOptions, may_lose_rows
from shoal.vector.preparation import prepare
from shoal.vector.vector_env import VectorEnv

__all__ = ["AsyncVectorEnv"]

_CLOSE_TIMEOUT = 60.0
"""Seconds for environments to close; the peer waits for ever."""

_OWN = {
    "num_workers": "has a process for each environment",
    "on_fault": "is Gymnasium's own class, which ends with its first fault",
    "worker_options": "is Gymnasium's own class, which starts its processes itself",
}
"""Arguments that Gymnasium's class has not, each with why it cannot take them."""

_RESERVED_CALLS = frozenset({"reset", "step", "close", "_setattr", "_check_spaces"})


class AsyncVectorEnv(VectorEnv):
    """Steps environments in worker processes, one for each.

    Takes the place of `gymnasium.vector.AsyncVectorEnv`: its arguments, attributes and errors. Unlike it:

    - no environment is built in the caller's process;
    - a worker that dies is a `shoal.WorkerDied` at once, or a new one with `on_fault="restart"`; close() works then and always;
    - late results of a call that timed out are dropped, not taken for those of the next;
    - an exception in call() leaves the workers as they are;
    - observations of Text and OneOf spaces are never stale, whatever `shared_memory` says.

    With a custom `worker`, which speaks the pipes of Gymnasium's own, one of those is returned.
    """

    _final_keys = ("final_info", "final_obs")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = args[5] if len(args) > 5 else kwargs.get("worker")
        if worker is not None:
            _check_worker(worker)
            for name in _OWN:
                if kwargs.pop(name, None) is not None:
                    raise ValueError(f"AsyncVectorEnv(worker=…) {_OWN[name]}: leave {name} out")
            return GymnasiumsAsyncVectorEnv(*args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: None = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
        on_fault: str | FaultPolicy = "raise",
        worker_options: WorkerOptions | None = None,
    ) -> None:
        """See `gymnasium.vector.AsyncVectorEnv`; what comes by keyword alone is Shoal's own.

        Args:
            shared_memory: observations are in shared memory either way; True refuses spaces without arrays, as the peer.
            context: None starts workers by a fork server, or forks them where a factory cannot be pickled, multiprocessing's
                default is "fork" and it is safe here. "fork" gives way to the peer's default, with a warning that names the cause, where it would break.
            daemon: kept as an attribute. Workers always end with their parent and may always start processes.
            max_concurrency: so many worker processes share the environments.
            num_workers: so many worker processes share the environments; by default each has one of its own. As many as
                there are CPUs is fastest for environments that compute; one each lets those that wait do so together.
            on_fault: "restart" makes a new environment in the place of one that was lost (its process killed, or an
                exception), whose episode ends truncated, with `infos["fault"]`; "drop" goes on without it; "raise" raises. See
                `shoal.FaultPolicy`, which also sets deadlines and limits.
            worker_options: how worker processes are set up.
        """
        faults = on_fault if isinstance(on_fault, FaultPolicy) else FaultPolicy(on_fault)
        options = WorkerOptions() if worker_options is None else worker_options
        if not isinstance(options, WorkerOptions):
            raise TypeError(f"AsyncVectorEnv(worker_options=…) takes shoal.WorkerOptions(…), got {worker_options!r}")
        mode = AutoresetMode(autoreset_mode)
        check_mode(observation_mode)
        _check_max_concurrency(max_concurrency)
        if context is not None and context not in multiprocessing.get_all_start_methods():
            raise ValueError(f"cannot find context for {context!r}")
        recipe = recipe_of(factories_of(env_fns, type(self).__name__), None, {})
        workers = len(recipe.factories)
        for limit in (max_concurrency, num_workers):
            workers = workers if limit is None else min(workers, _positive("num_workers", limit))
        same = observation_mode == "same"
        shared_state = _core.process.SharedState.create(options.shared_bytes)
        parcel = Parcel()
        engine = _start(recipe, workers, context, mode, faults, copy, options, shared_state, same, parcel)
        try:
            hellos = [pickle.loads(hello) for w in range(engine.num_workers) if (hello := engine.hello(w))]
            self._check_hellos(hellos)
            seen = [
                space for hello in hellos for space in hello.get("observation_spaces", [hello["observation_space"]])
            ]
            batched, single = observation_spaces(observation_mode, seen, len(recipe.factories), type(self).__name__)
            if shared_memory:
                check_shared_memory(single)
            super().__init__(
                engine,
                hellos[0],
                autoreset_mode=mode,
                copy=copy,
                shared_state=shared_state,
                exact=True,
                parcel=parcel,
                marks_rows=may_lose_rows(faults.on_fault, options),
            )
        except BaseException:
            engine.close()
            raise
        self.env_fns = env_fns
        self.shared_memory = shared_memory
        self.context = context
        self.daemon = daemon
        self.worker = worker
        self.observation_mode = observation_mode
        self.max_concurrency = max_concurrency
        self.observation_space, self.single_observation_space = batched, single
        self.observations: Any = create_empty_array(single, self.num_envs, fn=np.zeros)  # of the last reset or step
        self.spec = None  # factories do not say how the whole could be made again
        self._was_reset = True  # or not: the environments say whether they may be stepped before
        self._late: str | None = None  # a call whose time was over, and whose result nobody wants

    @property
    def processes(self) -> list[Process]:
        """The worker processes."""
        pids = [worker["pid"] for worker in self._engine.stats()["workers"]]
        return [Process(pid, f"Worker<{type(self).__name__}>-{i}", self.daemon) for i, pid in enumerate(pids)]

    @property
    def _state(self) -> AsyncState:
        return AsyncState(self._pending or "default")

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        self._check_idle("reset_async")
        super().reset_async(seed, without_mask(options))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        result = super().reset_wait(timeout)
        self.observations = result[0]
        return result

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        result = super().step_wait(timeout)
        self.observations = result[0]
        return result

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        if name in _RESERVED_CALLS:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        super().call_async(name, *args, **kwargs)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ends the workers.

        Args:
            timeout: seconds for a call that is still under way to end; None waits for it, as long as its worker lives.
                Workers that take longer are killed.
            terminate: kills the workers at once: their environments are not closed.
        """
        late, self._late = self._late, None
        if self._pending is not None:
            logger.warn(f"Calling `close` while waiting for a pending call to `{self._pending}` to complete.")
        elif late is not None:
            self._pending = late
        if self._pending is not None and not terminate:
            terminate = not self._finish_pending(timeout)
        self._pending = None
        super().close_extras(timeout=_CLOSE_TIMEOUT if timeout is None else timeout, terminate=terminate)

    def _tell_close_failures(self, failures: list[BaseException]) -> None:
        """Logs what the environments raised: the peer's close() raises none of it."""
        for failure in failures:
            trace = failure.__cause__
            if not isinstance(trace, RemoteTraceback):
                raise failure
            logger.error(f"Worker-{trace.env_index} raised this while its environment was closed:")
            logger.error("%s", trace.traceback)

    def __del__(self) -> None:
        if hasattr(self, "_late") and not self.closed:
            self._pending = self._late = None  # nobody is there to be warned
            self.close(terminate=True)

    def _check_hellos(self, hellos: Sequence[dict[str, Any]]) -> None:
        """The engine has compared all spaces but those that exist in Python only."""
        for hello in hellos[1:]:
            if not _core.same_space(hello["action_space"], hellos[0]["action_space"]):
                raise _action_spaces_differ(hellos[0]["action_space"])
            if "observation_spaces" not in hello and not _core.same_space(
                hello["observation_space"], hellos[0]["observation_space"]
            ):
                raise _observation_spaces_differ(True)

    def _check_idle(self, call: str) -> None:
        self._drop_late_result()
        try:
            super()._check_idle(call)
        except AlreadyPendingCallError as error:
            if call == "reset_async":  # the peer's message has no full stop
                raise AlreadyPendingCallError(str(error).removesuffix("."), error.name) from None
            raise

    def step_async(self, actions: Any) -> None:
        if self._late is not None:
            self._drop_late_result()
        step_exactly(self, actions, super().step_async)

    def _drop_late_result(self) -> None:
        if self._late is None or self.closed:
            return
        self._pending, self._late = self._late, None
        try:
            self._finish_pending(None)
        finally:
            self._pending = None

    def _wait(self, wait: Any, timeout: float | None) -> Any:
        try:
            return super()._wait(wait, timeout)
        except TimeoutError as error:
            if self._pending is None:  # an environment's own
                self._warn_of(error)
                raise
            self._late, self._pending = self._pending, None
            raise multiprocessing.TimeoutError(
                f"The call to `{self._late}_wait` has timed out after {timeout} second(s)."
            ) from None
        except Exception as error:
            if wait != self._answers:
                self._warn_of(error)
            raise

    def _warn_of(self, error: Exception) -> None:
        """What the peer logs about the workers that failed."""
        cause = error.__cause__
        if not isinstance(cause, RemoteTraceback):
            return
        for failure in (error, *cause.others):
            trace = failure.__cause__
            assert isinstance(trace, RemoteTraceback)
            notes = "".join(f"{note}\n" for note in getattr(failure, "__notes__", ()))
            logger.error(f"Received the following error from Worker-{trace.env_index} - Shutting it down")
            logger.error("%s", trace.traceback.removesuffix(notes))
        logger.error("Raising the last exception back to the main process.")


def _check_worker(worker: Any) -> None:
    """As the peer does, which calls it with eight arguments."""
    try:
        signature = inspect.signature(worker)
        signature.bind(*(None,) * 8)
    except TypeError as error:
        if not callable(worker):
            raise TypeError(f"AsyncVectorEnv(worker=…) takes a function, got {worker!r}") from None
        raise ValueError(
            f"A custom `worker` must accept 8 arguments. Got the signature {signature} which should match "
            f"{inspect.signature(_async_worker)}."
        ) from error


def _check_max_concurrency(limit: Any) -> None:
    if limit is None:
        return
    if not isinstance(limit, int | np.integer):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(limit)}.")
    if limit < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {limit}.")


def _positive(name: str, value: Any) -> int:
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"AsyncVectorEnv({name}=…) takes 1 or more, got {value}")
    return number


def _start(
    recipe: Recipe,
    workers: int,
    context: str | None,
    mode: AutoresetMode,
    faults: FaultPolicy,
    copy: bool,
    options: WorkerOptions,
    shared_state: _core.process.SharedState,
    same: bool,
    parcel: Parcel,
) -> _core.VectorEnv:
    from shoal.vector.processes import start

    def start_with(method: str) -> _core.VectorEnv:
        return start(
            recipe,
            workers,
            method,
            mode.name.lower(),
            faults.settings(options.start_timeout),
            copy,
            options,
            prepare(None, None, None, method, options),
            shared_state,
            parcel=parcel,
            same_observations=same,
            exact=True,
        )

    try:
        try:
            return start_with(context or "auto")
        except PicklingError:
            if context is not None or _default_method() != "fork":
                raise
            with contextlib.suppress(ForkRefused):
                return start_with("fork")  # as the peer, whose forks need no pickle
            raise
        except ForkRefused as refused:
            warnings.warn(
                f"AsyncVectorEnv(context='fork') starts its workers by a fork server: {refused}", stacklevel=3
            )
            return start_with("auto")
    except SpacesDiffer as differ:
        if "action" in str(differ).partition(":")[0]:
            raise _action_spaces_differ(differ) from differ
        raise _observation_spaces_differ(same) from differ


def _default_method() -> str:
    """Of multiprocessing, without fixing it."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _action_spaces_differ(what: Space[Any] | SpacesDiffer) -> RuntimeError:
    return RuntimeError(
        f"Some environments have an action space different from `{what}`. In order to batch actions, the action spaces "
        "from all environments must be equal."
    )


def _observation_spaces_differ(same: bool) -> RuntimeError:
    if same:
        return RuntimeError(
            "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments observation spaces are not "
            "equivalent. If this is intentional, use `observation_mode='different'` instead."
        )
    return RuntimeError(
        "AsyncVectorEnv(..., observation_mode='different' or custom space) however the sub-environment's observation "
        "spaces do not share a common shape and dtype."
    )
