"""DI-engine: in this process, and a process for each environment with observations in shared memory, which resets in place."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from ding.envs import AsyncSubprocessEnvManager, BaseEnv, BaseEnvManagerV2, BaseEnvTimestep, SubprocessEnvManagerV2

from shoal.bench.measuring import Measure, Mode, Task, best_of, random_actions, repeating

PACKAGE = "ding"

torch.set_num_threads(1)


class Adapted(BaseEnv):  # type: ignore[misc]  # DI-engine comes without types
    """A Gymnasium environment as DI-engine's managers step it, with nothing added."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self._seed: int | None = None
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.reward_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self) -> np.ndarray:
        seed, self._seed = self._seed, None
        observations: np.ndarray = self._env.reset(seed=seed)[0]
        return observations

    def step(self, action: Any) -> BaseEnvTimestep:
        obs, reward, terminated, truncated, info = self._env.step(int(action))
        return BaseEnvTimestep(obs, reward, terminated or truncated, info)

    def seed(self, seed: int, dynamic_seed: bool = False) -> None:
        self._seed = seed

    def close(self) -> None:
        self._env.close()

    def __repr__(self) -> str:
        return repr(self._env)


def launched(task: Task, kind: Any, **settings: Any) -> Any:
    make = task.make
    config = kind.default_config()
    config.update(settings)
    envs = kind([lambda: Adapted(make())] * task.num_envs, config)
    envs.seed(list(range(task.num_envs)), dynamic_seed=False)
    envs.launch()
    task.closing.callback(envs.close)
    return envs


def together(kind: type, **settings: Any) -> Mode:
    def build(task: Task) -> Measure:
        envs = launched(task, kind, **settings)
        actions = random_actions(task.num_envs)

        def turn() -> int:
            obs = envs.ready_obs
            return len(envs.step(list(next(actions)[: len(obs)])))

        return repeating(turn)

    return build


def asynchronous(task: Task) -> Measure:
    def build(task: Task, wait_num: int, step_wait_timeout: float) -> Measure:
        envs = launched(
            task,
            AsyncSubprocessEnvManager,
            copy_on_get=False,
            reset_inplace=True,
            wait_num=wait_num,
            step_wait_timeout=step_wait_timeout,
        )
        actions = random_actions(task.num_envs)

        def turn() -> int:
            return len(envs.step(dict(zip(envs.ready_obs, next(actions), strict=False))))

        return repeating(turn)

    candidates = [
        {"wait_num": size, "step_wait_timeout": seconds}
        for size in task.batch_sizes
        for seconds in (0.01, 0.001, 0.0001)
    ]
    return best_of(task, candidates, build)


MODES: dict[str, Mode] = {
    "base": together(BaseEnvManagerV2),
    "subprocess": together(SubprocessEnvManagerV2, copy_on_get=False, reset_inplace=True),
    "async": asynchronous,
}
