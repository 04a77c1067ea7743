"""What is trained: a row for each preset of each algorithm, on the task that it is for, or one that its source gives a figure of."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

__all__ = ["HOURS", "ROWS", "SAME", "Row", "row_named"]

HOURS = 0.25
"""Rows that take longer for a seed, on one CPU, are trained only where they are named."""


@dataclass(frozen=True)
class Row:
    """A preset on a task.

    Attributes:
        algorithm, preset: as `shoal.learn.train` names them.
        env: the task; "shoal/…" are Shoal's own, in C++, for which others train on Gymnasium's of the name. "module:…" is one of
            the source folder's examples, and is trained where the module is found: in the example's folder.
        hours: about how long a seed takes on one CPU.
        steps: where it is not as many as the preset has.
        num_workers: processes of A3C; otherwise a seed has one CPU, and all is done in its process.
        target: a mean return at which the task counts as solved.
    """

    algorithm: str
    preset: str
    env: str
    hours: float = 0.02
    steps: int | None = None
    num_workers: int = 0
    target: float | None = None

    @property
    def name(self) -> str:
        return f"{self.algorithm}/{self.preset}" + ("" if self.task == self.preset else f":{self.task}")

    @property
    def task(self) -> str:
        return self.env.removeprefix("shoal/").rpartition(":")[2]

    @property
    def module(self) -> str:
        """The module that has the task; "" for one that is registered."""
        return self.env.rpartition(":")[0]

    @property
    def is_here(self) -> bool:
        return not self.module or importlib.util.find_spec(self.module) is not None


CARTPOLE, ACROBOT, PENDULUM = "shoal/CartPole-v1", "shoal/Acrobot-v1", "shoal/Pendulum-v1"
CAR, CONTINUOUS_CAR, LANDER = "shoal/MountainCar-v0", "shoal/MountainCarContinuous-v0", "LunarLander-v3"
PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
CHEETAH, HOPPER, WALKER = "HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"


def _classic(algorithm: str) -> list[Row]:
    return [
        Row(algorithm, "CartPole-v1", CARTPOLE, target=475),
        Row(algorithm, "Acrobot-v1", ACROBOT, target=-100),
        Row(algorithm, "Pendulum-v1", PENDULUM, target=-200),
        Row(algorithm, "MountainCar-v0", CAR, target=-110),
        Row(algorithm, "MountainCarContinuous-v0", CONTINUOUS_CAR, target=90),
    ]


_LIST = [
    *_classic("ppo"),
    Row("ppo", "LunarLander-v3", LANDER, target=200),
    Row("ppo", "SegmentedWorld-v0", "segmented_world:SegmentedWorld-v0"),
    Row("ppo", "sb3", CARTPOLE, steps=100_000, target=475),
    *(Row("ppo", "sb3", task, steps=1_000_000, hours=0.3) for task in (CHEETAH, HOPPER, WALKER)),
    Row("ppo", "cleanrl", CARTPOLE, target=475),
    Row("ppo", "HalfCheetah-v5", CHEETAH, hours=0.2),
    Row("ppo", "Hopper-v5", HOPPER, hours=0.2),
    Row("ppo", "Walker2d-v5", WALKER, hours=0.2),
    Row("ppo", "cleanrl_continuous", CHEETAH, hours=0.2),
    Row("ppo", "cleanrl_continuous", HOPPER, hours=0.2),
    Row("ppo", "cleanrl_continuous", WALKER, hours=0.2),
    Row("ppo", "Pong-v5", PONG, hours=4, target=18),
    Row("ppo", "atari", PONG, hours=4, target=18),
    Row("ppo", "atari", BREAKOUT, hours=4),
    Row("ppo", "zoo_atari", PONG, hours=4, target=18),
    Row("ppo", "cleanrl_atari", PONG, hours=4, target=18),
    Row("ppo", "cleanrl_atari", BREAKOUT, hours=4),
    *_classic("a2c"),
    Row("a2c", "sb3", CARTPOLE, steps=500_000, target=475),
    Row("a2c", "atari", PONG, hours=4, target=18),
    Row("a2c", "zoo_atari", PONG, hours=4, target=18),
    Row("a3c", "CartPole-v1", CARTPOLE, num_workers=2, target=475),
    Row("a3c", "default", CARTPOLE, steps=500_000, num_workers=2, target=475),
    Row("impala", "CartPole-v1", CARTPOLE, target=475),
    Row("impala", "default", CARTPOLE, steps=500_000, target=475),
    Row("appo", "CartPole-v1", CARTPOLE, target=475),
    Row("appo", "LunarLander-v3", LANDER, hours=0.1, target=200),
    Row("appo", "default", CARTPOLE, steps=500_000, target=475),
    Row("dqn", "CartPole-v1", CARTPOLE, target=475),
    Row("dqn", "LunarLander-v3", LANDER, hours=0.1, target=200),
    Row("dqn", "sb3", CARTPOLE, steps=100_000, target=475),
    Row("dqn", "atari", PONG, hours=24, target=18),
    Row("dqn", "zoo_atari", PONG, hours=24, target=18),
    Row("dqn", "cleanrl_atari", PONG, hours=24, target=18),
    Row("dqn", "zoo_cartpole", CARTPOLE, target=475),
    Row("dqn", "zoo_lunarlander", LANDER, hours=0.05, target=200),
    Row("sac", "Pendulum-v1", PENDULUM, target=-200),
    Row("sac", "sb3", PENDULUM, steps=20_000, target=-200),
    Row("sac", "HalfCheetah-v5", CHEETAH, hours=2),
    Row("sac", "Hopper-v5", HOPPER, hours=2),
    Row("sac", "Walker2d-v5", WALKER, hours=2),
    Row("recurrent_ppo", "CartPoleNoVel-v1", "shoal/CartPoleNoVel-v1", target=475),
    Row("recurrent_ppo", "sb3", "shoal/CartPoleNoVel-v1", steps=100_000, hours=0.1, target=475),
    Row("recurrent_ppo", "cleanrl_atari_lstm", PONG, hours=24, target=18),
]
ROWS: dict[str, Row] = {row.name: row for row in _LIST}


def row_named(name: str) -> str:
    """The name of the one row that `name` is, or begins as far as the task; else `name`."""
    whole = [row for row in ROWS if row.startswith(f"{name}:")]
    return whole[0] if len(whole) == 1 and name not in ROWS else name


SAME = {
    ("ppo", "tianshou_mujoco"): "HalfCheetah-v5",
    ("sac", "zoo_mujoco"): "HalfCheetah-v5",
}
"""Presets that are another one by a second name, and so have no rows of their own."""
