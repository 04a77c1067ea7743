#!/usr/bin/env python3
"""PPO on one rank and on several: environment steps per second, learning included.

    python benchmarks/data_parallel.py [--ranks 1 2] [--rounds 5] [--seconds 8] [--step-us 200]

The environment computes for 0.2 ms a step, in the rank that learns from it. All have the same number of environments, the same
minibatches and the same network, so what is compared is the time of the same run. The numbers of ranks alternate, and what is
compared is the ratio of each round. Start-up is left out. The closing line says what else was running.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from in_turns import compared, rates_of, show

import shoal


class Busy(gymnasium.Env):
    """Computes for so many seconds of CPU time a step; episodes of 100 steps."""

    observation_space = spaces.Box(-1, 1, (8,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        self._step += 1
        return self._observe(), float(action == 0), False, self._step == 100, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 8).astype(np.float32)


NUM_STEPS, EPOCHS = 64, 4


def trainer(
    ranks: int, folder: str, *, step_us: float = 200, num_envs: int = 16, batch_size: int = 256
) -> shoal.learn.Trainer:
    """Of PPO on `Busy`, which goes on until it is stopped."""
    return shoal.learn.Trainer(
        Busy,
        nproc=ranks,
        env_kwargs={"seconds": step_us * 1e-6},
        num_envs=num_envs,
        num_steps=NUM_STEPS,
        batch_size=batch_size,
        epochs=EPOCHS,
        total_steps=10**9,
        num_workers=0,
        eval_every=0,
        eval_envs=1,
        final_episodes=0,
        save_every_seconds=1e6,
        run_dir=f"{folder}/run",
    )


def rate(ranks: int, options: argparse.Namespace) -> float:
    """Steps per second between the first iteration and the end of the time."""
    with (
        tempfile.TemporaryDirectory(prefix="shoal-bench-") as scratch,
        trainer(ranks, scratch, step_us=options.step_us) as training,
    ):
        training.start()
        while training.status()["step"] == 0:
            training.wait(0.001)
        begin, first = time.perf_counter(), training.status()["step"]
        training.wait(options.seconds)
        last, seconds = training.status()["step"], time.perf_counter() - begin
        training.stop()
        training.wait()
    return (last - first) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--step-us", type=float, default=200)
    options = parser.parse_args()
    sides = {f"{ranks} ranks": lambda ranks=ranks: rate(ranks, options) for ranks in options.ranks}
    show(compared(rates_of(sides, options.rounds), "of_the_first", first_is_above=False), "of_the_first")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load} (1, 5 and 15 minutes)")


if __name__ == "__main__":
    main()
