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


class Stepped:
    """All environments a step."""

    def __init__(self, on_fault: str) -> None:
        self.envs = shoal.make_vec(Env, 8, num_workers=2, on_fault=on_fault)
        self.envs.reset(seed=0)

    def lost(self) -> list[int]:
        """One step; the rows that it lost."""
        *_, infos = self.envs.step(np.zeros(8, np.int64))
        return np.flatnonzero(infos["fault"]).tolist() if "fault" in infos else []


class Received:
    """Whoever is ready; the same, told when a whole worker's rows have said so."""

    def __init__(self, on_fault: str) -> None:
        self.envs = shoal.make_vec(Env, 8, num_workers=2, on_fault=on_fault, batch_size=3)
        self.envs.async_reset(seed=0)
        self.known: set[int] = set()

    def lost(self) -> list[int]:
        *_, infos = self.envs.recv()
        ids = infos["env_id"].copy()
        if "fault" in infos:
            self.known.update(int(i) for i, fault in zip(ids, infos["fault"], strict=True) if fault is not None)
        self.envs.send(np.zeros(len(ids), np.int64), ids)
        return sorted(self.known) if len(self.known) == 4 else []


def main() -> None:
    stepping = (Received if "async" in sys.argv[2:] else Stepped)(sys.argv[1])
    envs = stepping.envs
    stepping.lost()
    zygote = [launcher.zygote_pid for launcher in sys.modules["shoal.process._launcher"]._launchers.values()]
    print("pids", *zygote, *[worker["pid"] for worker in envs.stats()["workers"]], flush=True)
    while True:
        try:
            lost = stepping.lost()
        except shoal.WorkerDied as died:
            print("died", died.index, died.exitcode, flush=True)
            break
        if lost:
            print("restarted", *lost, flush=True)
    envs.close()
    sys.stdin.read()  # until the test has looked


if __name__ == "__main__":
    main()
