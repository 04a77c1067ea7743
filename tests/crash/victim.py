"""The program that the crash tests kill: it steps environments in worker processes until it ends.

    victim.py ON_FAULT sync|async ENVIRONMENTS     # how many a kill costs

Prints its processes ("pids …", the zygote first) when it steps, then a line for every error that it is given, or when it is
whole again: which environments it had lost, and its processes.
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


ENVS, WORKERS = 8, 2

POLICY = shoal.FaultPolicy("restart", max_restarts=10**6, backoff=0.001, max_backoff=0.001)
"""It is killed more often than a program would be."""


class Stepped:
    """All environments a step."""

    def __init__(self, on_fault: shoal.FaultPolicy | str) -> None:
        self.envs = shoal.make_vec(Env, ENVS, num_workers=WORKERS, on_fault=on_fault)
        self.envs.reset(seed=0)

    def step(self) -> tuple[list[int], list[int]]:
        """The environments that this step lost, and those that it stepped."""
        *_, infos = self.envs.step(np.zeros(ENVS, np.int64))
        return _sorted_out(np.arange(ENVS), infos)


class Received:
    """Whoever is ready."""

    def __init__(self, on_fault: shoal.FaultPolicy | str) -> None:
        self.envs = shoal.make_vec(Env, ENVS, num_workers=WORKERS, on_fault=on_fault, batch_size=3)
        self.envs.async_reset(seed=0)

    def step(self) -> tuple[list[int], list[int]]:
        """As above, of a batch."""
        *_, infos = self.envs.recv()
        ids = infos["env_id"].copy()
        sorted_out = _sorted_out(ids, infos)
        self.envs.send(np.zeros(len(ids), np.int64), ids)
        return sorted_out


def _sorted_out(ids: np.ndarray, infos: dict) -> tuple[list[int], list[int]]:
    lost = [int(i) for i, fault in zip(ids, infos.get("fault", [None] * len(ids)), strict=True) if fault is not None]
    down = [int(i) for i, is_down in zip(ids, infos.get("down", [False] * len(ids)), strict=True) if is_down]
    return lost, sorted(set(ids.tolist()) - set(lost) - set(down))


def processes(envs: shoal.VectorEnv) -> list[int]:
    """The zygote and the workers."""
    return [zygote["pid"] for zygote in shoal.process.zygotes()] + [worker["pid"] for worker in envs.health()]


def main() -> None:
    stepping = (Received if sys.argv[2] == "async" else Stepped)(POLICY if sys.argv[1] == "restart" else sys.argv[1])
    at_a_time = int(sys.argv[3])
    envs = stepping.envs
    stepping.step()
    print("pids", *processes(envs), flush=True)
    killed: set[int] = set()
    away: set[int] = set()
    while True:
        try:
            lost, stepped = stepping.step()
        except shoal.WorkerDied as died:
            print("died", died.index, died.exitcode, flush=True)
            break
        killed.update(lost)
        away.update(lost)
        away.difference_update(stepped)
        if len(killed) == at_a_time and not away:
            print("restarted", *sorted(killed), "pids", *processes(envs), flush=True)
            killed.clear()
    envs.close()
    sys.stdin.read()  # until the test has looked


if __name__ == "__main__":
    main()
