"""PPO of Stable-Baselines3 on Pong with 8 environments, with rl-baselines3-zoo's settings of Atari; prints steps/s without the first
iteration. For benchmarks/pictures.py."""

from __future__ import annotations

import sys
import time

import ale_py
import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack


class Clock(BaseCallback):
    """When each rollout began: an iteration is a rollout and its update."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.begun.append((self.num_timesteps, time.perf_counter()))


def main() -> None:
    gymnasium.register_envs(ale_py)
    envs = make_atari_env("PongNoFrameskip-v4", n_envs=8, seed=1, vec_env_cls=SubprocVecEnv)
    envs = VecFrameStack(envs, n_stack=4)
    clock = Clock()
    PPO(
        "CnnPolicy",
        envs,
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda remaining: remaining * 2.5e-4,
        clip_range=lambda remaining: remaining * 0.1,
        vf_coef=0.5,
        ent_coef=0.01,
        seed=1,
    ).learn(int(sys.argv[1]), callback=clock)
    (first, start), (last, end) = clock.begun[1], clock.begun[-1]
    print((last - first) / (end - start))
    envs.close()


if __name__ == "__main__":
    main()
