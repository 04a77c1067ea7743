"""`ding.envs`' managers of environments in worker processes, on Shoal's engine."""

from __future__ import annotations

import copy
import dataclasses
import numbers
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from ding.envs import AsyncSubprocessEnvManager as PeersAsyncSubprocessEnvManager
from ding.envs import BaseEnvTimestep
from ding.envs import SubprocessEnvManagerV2 as PeersSubprocessEnvManagerV2
from ding.envs import SyncSubprocessEnvManager as PeersSyncSubprocessEnvManager
from ding.envs.env_manager.base_env_manager import EnvState
from ding.envs.env_manager.subprocess_env_manager import is_abnormal_timestep
from ding.utils import render

from shoal.compat.arguments import factories_of, worker_options
from shoal.compat.ding.settings import OWN, fault_policy, number_of_workers, whole
from shoal.compat.ding.trees import by_environment, offered, timestep_trees
from shoal.compat.timesteps.slot import Failure, ResetOrder, Rules
from shoal.compat.timesteps.slots import Lost, Slots, Stepped, error_of, started
from shoal.errors import WorkerDied
from shoal.reprs import never_raises
from shoal.vector.faults import Fault, FaultPolicy
from shoal.vector.options import WorkerOptions

__all__ = [
    "AsyncSubprocessEnvManager",
    "SubprocessEnvManager",
    "SubprocessEnvManagerV2",
    "SyncSubprocessEnvManager",
]

_GRACE = 5.0
"""Seconds that a worker has for a timeout of its own, in Python, before it is killed."""


class _OnSlots:
    """What the managers have in common. Their environments are Slots, which exist from launch() to close().

    What comes back from the workers is looked at in step(), reset() and ready_obs alone: between them no state changes. So the
    environments of an action are those of the observation that it answers.
    """

    def __init__(
        self, env_fn: Iterable[Callable[[], Any]], cfg: Any = None, *, worker: WorkerOptions | None = None
    ) -> None:
        """See the peer's. Nothing is built before launch(), or before somebody asks for a space.

        Args:
            env_fn: a function for each environment. Lambdas, closures and what `__main__` defines are fine.
            cfg: as default_config() returns it; keys that are missing have its values.
            worker: how worker processes are set up, in the place of `cfg.worker`.
        """
        who = type(self).__name__
        self._slots: Slots | None = None
        self._closed = True
        self._env_fn = factories_of(env_fn, who)
        self._cfg = cfg = whole(type(self), cfg)
        self._env_num = len(self._env_fn)
        self._episode_num = cfg.episode_num
        self._max_retry = max(cfg.max_retry, 1)
        self._auto_reset = cfg.auto_reset
        self._retry_type = cfg.retry_type
        self._retry_waiting_time = cfg.retry_waiting_time
        self._step_timeout = cfg.step_timeout
        self._reset_timeout = cfg.reset_timeout
        self._connect_timeout = cfg.connect_timeout
        self._shared_memory = cfg.shared_memory
        self._copy_on_get = cfg.copy_on_get
        self._context = cfg.context
        self._wait_num = cfg.wait_num
        self._step_wait_timeout = cfg.step_wait_timeout
        self._reset_inplace = cfg.reset_inplace
        if self._reset_inplace and not self._auto_reset:
            raise AssertionError("reset_inplace is unavailable when auto_reset=False.")
        self._num_workers = number_of_workers(cfg, self._env_num, who)
        self._worker_options = worker_options(
            cfg.worker if worker is None else worker,
            who,
            "a policy is asked about every environment",
        )
        self._fault_policy = fault_policy(cfg, who)
        self._restarts = self._fault_policy.on_fault == "restart"  # else a worker's death ends a step with an error
        self._env_replay_path: list[str] | None = None
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        self._env_seed: dict[int, Any] = dict.fromkeys(range(self._env_num))
        self._env_dynamic_seed: bool | None = None
        self._spaces: tuple[Any, ...] | None = None
        self._reference: Any = None
        self._clear()

    def _clear(self) -> None:
        everybody = range(self._env_num)
        self._env_episode_count = dict.fromkeys(everybody, 0)
        self._ready_obs: dict[int, Any] = dict.fromkeys(everybody)
        self._reset_param: dict[int, Any] = {i: {} for i in everybody}
        self._late: set[int] = set()  # whose step an asynchronous step() has not waited for
        self._came: dict[int, Any] = {}  # results of steps that no step() has taken yet
        self._lost: dict[int, int] = {}  # how often an environment's worker has died in the reset that it is in
        self._offered: list[int] | None = None

    @never_raises
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._env_num} environments{', closed' if self._closed else ''}>"

    # What the peer's have

    @property
    def env_num(self) -> int:
        return self._env_num

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def env_ref(self) -> Any:
        """An environment in this process, made when it is first asked for."""
        return self._env_ref

    @property
    def _env_ref(self) -> Any:
        if self._reference is None:
            self._reference = self._env_fn[0]()
        return self._reference

    @property
    def observation_space(self) -> Any:
        return self._space(0)

    @property
    def action_space(self) -> Any:
        return self._space(1)

    @property
    def reward_space(self) -> Any:
        return self._space(2)

    @property
    def ready_env(self) -> list[int]:
        """The environments that wait for an action."""
        late = self._late
        return [i for i, state in self._env_states.items() if state is EnvState.RUN and i not in late]

    @property
    def ready_obs_id(self) -> list[int]:
        """The environments of the last ready_obs; where there was none since the last step or reset, those that are ready."""
        if self._offered is None:
            self._look_around()
            self._offered = self.ready_env
        return list(self._offered)

    @property
    def ready_obs(self) -> Any:
        """The observations of the environments that wait for an action, by environment. Waits until there is one, where one is
        being reset."""
        return {i: self._ready_obs[i] for i in self._offer()}

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """What the environments that wait for an action look like, by environment."""
        return self._ask(dict.fromkeys(self.ready_env, ("apply", render, "rgb_array")))

    @property
    def done(self) -> bool:
        return all(state == EnvState.DONE for state in self._env_states.values())

    def env_state_done(self, env_id: int) -> bool:
        return bool(self._env_states[env_id] == EnvState.DONE)

    def launch(self, reset_param: Mapping[int, Any] | None = None) -> None:
        assert self._closed, "please first close the env manager"
        if reset_param is not None:
            assert len(reset_param) == self._env_num, (
                f"launch() takes reset parameters of all {self._env_num} environments, got those of {list(reset_param)}"
            )
        self._clear()
        self._start()
        self._closed = False
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.INIT)
        if self._env_replay_path is not None:
            self._ask({i: ("call", "enable_save_replay", path) for i, path in enumerate(self._env_replay_path)})
        self.reset(reset_param)

    def reset(self, reset_param: Mapping[int, Any] | None = None) -> None:
        """Resets all environments, or those of `reset_param`, with these keyword arguments (None: with none)."""
        self._check_closed()
        env_ids = list(range(self._env_num)) if reset_param is None else list(reset_param)
        self._check_ids(env_ids, "reset")
        for i, param in (reset_param or {}).items():
            if param is not None and not isinstance(param, dict):
                raise TypeError(f"reset(): the parameters of environment {i} are a dict or None, got {param!r}")
            self._reset_param[i] = param
        self._offered = None
        slots = self._all
        while any(slots.call_of(i) for i in env_ids):
            self._take_one(None)
        for i in env_ids:
            self._late.discard(i)
            self._came.pop(i, None)
        self._begin_resets(env_ids, seeded=True)
        while any(slots.call_of(i) for i in env_ids):
            self._take_one(None)

    def step(self, actions: Any) -> Any:
        self._check_closed()
        if not isinstance(actions, Mapping):
            raise TypeError(f"step() takes a dict from environments to actions, got {type(actions).__name__}")
        self._check_running(actions)
        return self._finish(self._step_results(actions))

    def seed(self, seed: Any, dynamic_seed: bool | None = None) -> None:
        """Seeds of the next reset: environment i gets `seed + i`, or those of a list, or of a dict by environment."""
        if isinstance(seed, numbers.Integral):
            own = {i: int(seed) + i for i in range(self._env_num)}
        elif isinstance(seed, list):
            assert len(seed) == self._env_num, f"len(seed) {len(seed)} != env_num {self._env_num}"
            own = dict(enumerate(seed))
        elif isinstance(seed, dict):
            self._check_ids(seed, "seed")
            own = dict(seed)
        else:
            raise TypeError(f"invalid seed arguments type: {type(seed)}")
        self._env_seed.update(own)
        self._env_dynamic_seed = dynamic_seed
        if self._spaces is not None:
            self._seed_actions()

    def enable_save_replay(self, replay_path: list[str] | str) -> None:
        """For the next launch()."""
        self._env_replay_path = [replay_path] * self._env_num if isinstance(replay_path, str) else list(replay_path)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        assert figure_path is not None
        self._ask({env_id: ("call", "enable_save_figure", figure_path)})

    def reward_shaping(self, env_id: int, transitions: list[Any]) -> Any:
        return self._ask({env_id: ("call", "reward_shaping", transitions)})[env_id]

    def random_action(self) -> dict[int, Any]:
        return {i: self.action_space.sample() for i in self.ready_obs_id}

    def close(self) -> None:
        """Closes the environments and ends their processes: those that take longer than 5 seconds are killed."""
        slots, self._slots = self._slots, None
        if not self._closed:
            self._closed = True
            self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
            self._offered = None
        if slots is not None:
            slots.close()

    def __getattr__(self, key: str) -> Any:
        """The attribute of every environment, as a list."""
        if key.startswith("__") or "_env_fn" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {key!r}")
        self._check_closed()
        answers = self._ask(dict.fromkeys(range(self._env_num), ("get", key)))
        kind = answers[0][0]
        if kind == "absent":
            raise AttributeError(f"the environments have no attribute {key!r}, and neither has {type(self).__name__}")
        if kind == "method" and key not in self.method_name_list:
            raise RuntimeError(f"env getattr doesn't support method({key}), please override method_name_list")
        return [value for _, value in answers.values()]

    # What is Shoal's own

    def stats(self) -> dict[str, Any]:
        """See `shoal.VectorEnv.stats()`."""
        self._check_closed()
        return self._all.stats()

    def health(self) -> list[dict[str, Any]]:
        """See `shoal.VectorEnv.health()`."""
        self._check_closed()
        return self._all.health()

    # Below the surface

    @property
    def _all(self) -> Slots:
        assert self._slots is not None
        return self._slots

    def _check_closed(self) -> None:
        if self._closed:
            raise AssertionError("env manager is closed, please use the alive env manager")

    def _check_ids(self, env_ids: Iterable[Any], call: str) -> None:
        for i in env_ids:
            if i not in self._env_states:
                raise ValueError(f"{call}(): there is no environment {i!r}, they are 0 to {self._env_num - 1}")

    def _check_running(self, actions: Mapping[int, Any]) -> None:
        ready = set(self.ready_env)
        if ready.issuperset(actions):
            return
        self._check_ids(actions, "step")
        raise AssertionError(
            f"current env state are: { {i: self._env_states[i] for i in actions} }, please check whether the requested env is in "
            "reset or done"
        )

    def _space(self, which: int) -> Any:
        if self._spaces is None:
            self._start()
        assert self._spaces is not None
        return self._spaces[which]

    def _start(self) -> None:
        if self._slots is not None:
            return
        kill = None if self._step_timeout is None else 1.0 * self._step_timeout + _GRACE
        if kill is not None and self._reset_inplace:
            kill = None if self._reset_limit is None else kill + self._reset_limit
        reset = self._reset_limit
        if reset is not None:
            reset = (reset + self._retry_waiting_time + _GRACE) * self._max_retry
        policy = self._fault_policy
        if self._retry_type == "renew":  # a worker that dies in a reset is one more failure of it
            policy = dataclasses.replace(policy, on_fault="restart")
        self._slots = started(
            self._env_fn,
            Rules(
                cast=bool(self._shared_memory),
                reset_inplace=bool(self._reset_inplace),
                step_timeout=self._step_timeout,
                reset_timeout=self._reset_timeout,
            ),
            num_workers=self._num_workers,
            context={"forkserver": "auto"}.get(self._context, self._context),
            faults=_with_deadlines(policy, kill, reset),
            worker=self._worker_options,
            own_rows=bool(self._copy_on_get),
        )
        if self._spaces is None:
            self._spaces = self._slots.spaces
            self._seed_actions()

    @property
    def _reset_limit(self) -> float | None:
        """Seconds that the engine waits for a reset: the peer's worker looks at one, its caller at the other. The worker's timer takes
        SIGALRM from the environment, and is for the first alone."""
        limits = [limit for limit in (self._reset_timeout, self._connect_timeout) if limit is not None]
        return min(limits, default=None)

    def _seed_actions(self) -> None:
        """As the peer: random_action() follows the first environment's seed."""
        seed = self._env_seed[0]
        if seed is not None and self._spaces is not None:
            try:
                self._spaces[1].seed(seed)
            except Exception:  # nested ones of some environments have no seed
                pass

    def _ask(self, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        self._check_closed()
        return self._all.ask(messages) if messages else {}

    def _begin_resets(self, env_ids: Iterable[int], seeded: bool = False) -> None:
        orders = {}
        for i in env_ids:
            given = None
            if seeded and self._env_seed[i] is not None:
                dynamic = () if self._env_dynamic_seed is None else (self._env_dynamic_seed,)
                given = (self._env_seed[i], *dynamic)
                self._env_seed[i] = None  # each is used once
            orders[i] = ResetOrder(
                kwargs=self._reset_param[i],
                attempts=self._max_retry,
                renew=self._retry_type == "renew",
                pause=self._retry_waiting_time,
                timeout=self._reset_timeout,
                seed=given,
            )
            self._env_states[i] = EnvState.RESET
        if orders:
            self._all.send_resets(orders)

    def _look_around(self) -> None:
        """Takes the resets that have come back by themselves."""
        self._check_closed()
        while self._all.resets:
            try:
                self._take_one(0.0)
            except TimeoutError:
                return

    def _offer(self) -> list[int]:
        """The environments of ready_obs, which step() of a list is about."""
        self._look_around()
        while not (ready := self.ready_env) and self._all.resets:
            self._take_one(None)
        self._offered = ready
        return ready

    def _take_one(self, timeout: float | None) -> int:
        """The next environment that has come back; its step is kept for a step() to take."""
        slots = self._all
        try:
            env_id, call, result = slots.receive(timeout)
        except TimeoutError:
            raise
        except Exception:
            self.close()
            raise
        if call == "step":
            self._came[env_id] = result
        elif isinstance(result, Failure):
            self._give_up(env_id, error_of(result, env_id))
        elif isinstance(result, Lost):
            self._lost[env_id] = self._lost.get(env_id, 0) + 1
            if self._lost[env_id] >= self._max_retry:
                self._give_up(env_id, _died(result.fault))
            self._begin_resets([env_id])
        else:
            self._lost.pop(env_id, None)
            self._env_states[env_id] = EnvState.RUN
            self._ready_obs[env_id] = result
        return env_id

    def _give_up(self, env_id: int, error: BaseException) -> NoReturn:
        self.close()
        raise RuntimeError(
            f"Env {env_id} reset has exceeded max retries({self._max_retry}), and the latest exception is: {error}"
        ) from error

    def _step_results(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        """Of all these environments."""
        slots = self._all
        if len(actions) == self._env_num and not slots.is_busy and not self._came:
            try:
                results = slots.step_all([actions[i] for i in range(self._env_num)])
            except Exception:
                self.close()
                raise
            return {i: results[i] for i in actions}
        slots.send_steps(actions)
        while not all(i in self._came for i in actions):
            self._take_one(None)
        return {i: self._came.pop(i) for i in actions}

    def _finish(self, results: dict[int, Any]) -> dict[int, Any]:
        """The timesteps; what has ended is reset, as it was asked for."""
        self._offered = None
        states, ready = self._env_states, self._ready_obs
        timesteps: dict[int, Any] = {}
        failed: BaseException | None = None
        to_reset = []
        for i, result in results.items():
            if type(result) is not Stepped:
                states[i] = EnvState.ERROR
                if isinstance(result, Failure):
                    failed = failed or error_of(result, i)
                elif not self._restarts:
                    failed = failed or _died(result.fault)
                else:
                    timesteps[i] = _abnormal(ready[i], result.fault)
                    if self._auto_reset:
                        to_reset.append(i)
                continue
            obs, reward, done, info, kind, whole_of_it = result
            if whole_of_it is not None:
                timestep = whole_of_it
                obs, done, info = timestep.obs, timestep.done, timestep.info
            else:
                timestep = (BaseEnvTimestep if kind is None else kind)(obs, reward, done, info)
            timesteps[i] = timestep
            if info and is_abnormal_timestep(timestep):
                states[i] = EnvState.ERROR
            elif not done:
                ready[i] = obs
            else:
                self._env_episode_count[i] += 1
                if self._env_episode_count[i] >= self._episode_num:
                    states[i] = EnvState.DONE
                elif not self._auto_reset:
                    states[i] = EnvState.NEED_RESET
                elif self._reset_inplace:
                    ready[i] = obs
                else:
                    to_reset.append(i)
        if failed is not None:
            self.close()
            raise failed
        self._begin_resets(to_reset)
        return timesteps


class AsyncSubprocessEnvManager(_OnSlots, PeersAsyncSubprocessEnvManager):
    """Environments in worker processes, which are stepped without waiting for all of them.

    Takes the place of `ding.envs.AsyncSubprocessEnvManager`, and is one: its configuration, methods and results, and those of
    SyncSubprocessEnvManager that it does not have. A step returns when `wait_num` of the environments under way are back and
    `step_wait_timeout` seconds have passed, or all are back.
    """

    config = {**PeersAsyncSubprocessEnvManager.config, "context": "forkserver", **copy.deepcopy(OWN)}

    def _step_results(self, actions: Mapping[int, Any]) -> dict[int, Any]:
        if actions:
            self._all.send_steps(actions)
        wanted = set(actions) | self._late
        least = min(self._wait_num, self._env_num, len(actions) or 1)
        pause = self._step_wait_timeout
        while True:
            deadline = None if pause is None else time.monotonic() + pause
            enough = min(least, len(wanted - self._came.keys()))
            before = len(self._came)
            while not wanted <= self._came.keys():
                left = None
                if deadline is not None and len(self._came) - before >= enough:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                try:
                    self._take_one(left)
                except TimeoutError:
                    break
            here = wanted & self._came.keys()
            if here == wanted or any(_goes_on(self._came[i]) for i in here):
                break
        results = {i: self._came.pop(i) for i in list(self._came) if i in here}
        self._late = wanted - here
        return results


class SyncSubprocessEnvManager(_OnSlots, PeersSyncSubprocessEnvManager):
    """Environments in worker processes, one for each.

    Takes the place of `ding.envs.SyncSubprocessEnvManager`, and is one: its configuration, methods and results. Unlike it:

    - observations that fit their space cross in shared memory whatever `shared_memory` says, all others as objects: it chooses
      whether dtypes are made the space's;
    - no environment is built in this process, unless `env_ref` is asked for;
    - an environment's exception is raised with its environment and the worker's traceback; a worker that dies is a
      `shoal.WorkerDied`, or a new one with `on_fault="restart"`;
    - workers see no GPU unless `worker=shoal.WorkerOptions(gpu="own")` says so, and have one thread each for OpenMP and kin.
    """

    config = {**PeersSyncSubprocessEnvManager.config, "context": "forkserver", **copy.deepcopy(OWN)}


SubprocessEnvManager = SyncSubprocessEnvManager
"""By the name that it has in configurations: "subprocess"."""


class SubprocessEnvManagerV2(SyncSubprocessEnvManager, PeersSubprocessEnvManagerV2):
    """SyncSubprocessEnvManager with observations and timesteps as trees of arrays.

    Takes the place of `ding.envs.SubprocessEnvManagerV2`, and is one. Unlike it, step() of a list gives the actions to the
    environments of the last `ready_obs`, whatever else has become ready since.
    """

    config = {**PeersSubprocessEnvManagerV2.config, "context": "forkserver", **copy.deepcopy(OWN)}

    @property
    def ready_obs(self) -> Any:
        """One array, or tree of arrays, with a row for each environment of `ready_obs_id`."""
        env_ids = self._offer()
        return offered(self._ready_obs, env_ids, self._env_states)

    def step(self, actions: Any) -> list[Any]:
        """Steps the environments of the last `ready_obs`.

        Args:
            actions: one for each of these environments, in their order; or a dict from environments to actions.

        Returns:
            A tree of arrays for each, in that order: obs, reward, done, info, env_id.

        Raises:
            ValueError: for another number of actions. Nothing has been stepped then.
        """
        self._check_closed()
        if not isinstance(actions, Mapping):
            actions = by_environment(actions, self.ready_obs_id)
        return timestep_trees(super().step(actions))


def _goes_on(result: Any) -> bool:
    """Whether somebody can act on it."""
    if type(result) is not Stepped:
        return True
    return not (result.done if result.whole is None else result.whole.done)


def _died(fault: Fault) -> WorkerDied:
    return WorkerDied(
        str(fault),
        worker=f"worker {fault.worker}",
        index=fault.worker,
        pid=fault.pid,
        exitcode=fault.exitcode,
        kind=fault.kind,
    )


def _abnormal(last: Any, fault: Fault) -> BaseEnvTimestep:
    """What DI-engine's collectors know: they throw the episode away."""
    return BaseEnvTimestep(last, np.zeros(1, np.float32), True, {"abnormal": True, "fault": str(fault)})


def _with_deadlines(policy: FaultPolicy, step: float | None, reset: float | None) -> FaultPolicy:
    """Of who hangs in code that no exception reaches."""
    return dataclasses.replace(
        policy,
        step_timeout=step if policy.step_timeout is None else policy.step_timeout,
        reset_timeout=reset if policy.reset_timeout is None else policy.reset_timeout,
    )
