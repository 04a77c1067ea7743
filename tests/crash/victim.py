"""The program that the crash tests kill: it steps environments in worker processes until it ends.

Prints its processes ("pids …") when it steps, then a line for every error that it is given.
"""

from __future__ import annotations

import sys

import gymnasium
import numpy as np

import shoal


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (64,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(64, np.float32), {}

    def step(self, action):
        return np.full(64, 0.5, np.float32), 1.0, False, False, {"note": "x" * 100}


def main() -> None:
    envs = shoal.make_vec(Env, 8, num_workers=2, on_fault=sys.argv[1])
    envs.reset(seed=0)
    actions = np.zeros(8, np.int64)
    zygote = [launcher.zygote_pid for launcher in sys.modules["shoal.process._launcher"]._launchers.values()]
    print("pids", *zygote, *[worker["pid"] for worker in envs.stats()["workers"]], flush=True)
    while True:
        try:
            *_, infos = envs.step(actions)
        except shoal.WorkerDied as died:
            print("died", died.index, died.exitcode, flush=True)
            break
        if "fault" in infos:
            print("restarted", *np.flatnonzero(infos["fault"]), flush=True)
    envs.close()
    sys.stdin.read()  # until the test has looked


if __name__ == "__main__":
    main()
