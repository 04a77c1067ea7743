"""What users had, in Stable-Baselines3: an environment with a server of its own, and three ways in which it fails in processes.

    python examples/server_per_worker/original.py instance | port | settings

- instance: a list of environments where functions are asked for (hill-a/stable-baselines#883). An environment that holds a
  socket does not travel.
- port: a class variable counts the ports (ray-project/ray#15113). Every process counts for itself, from the same number.
- settings: what the main program has set does not reach the workers, which import the module anew (hill-a/stable-baselines#528).

with_sb3.py is the program that works.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import settings
from simulator import Simulator
from stable_baselines3.common.vec_env import SubprocVecEnv

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory


class World(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    port = 15_005

    def __init__(self, port: int | None = None) -> None:
        World.port += 1  # the next one takes another
        self.world = settings.WORLD
        self._simulator = Simulator(port or World.port, settings.Physics.friction)
        self._socket = socket.create_connection(("127.0.0.1", port or World.port))
        self._stream = self._socket.makefile("rw")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._ask({"reset": True}), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        position = self._ask({"move": 1 if action else -1})
        done = bool(position[0] >= settings.GOAL)
        return position, float(done), done, False, {}

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
        self._simulator.close()

    def _ask(self, request: dict[str, Any]) -> np.ndarray:
        self._stream.write(json.dumps(request) + "\n")
        self._stream.flush()
        return np.array([json.loads(self._stream.readline())])


def free_ports(count: int) -> list[int]:
    """Free when they were looked for: another program may be faster."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def instance() -> SubprocVecEnv:
    worlds = [World(port) for port in free_ports(4)]
    return SubprocVecEnv([lambda world=world: world for world in worlds])


def port() -> SubprocVecEnv:
    return SubprocVecEnv([World] * 4)


def with_settings() -> SubprocVecEnv:
    return SubprocVecEnv([lambda port=port: World(port) for port in free_ports(4)])


WAYS = {"instance": instance, "port": port, "settings": with_settings}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    way = parser.parse_args().way
    settings.WORLD = "ice"
    begun = time.perf_counter()
    envs = WAYS[way]()
    envs.reset()
    each = max(memory(process.pid) for process in envs.processes)
    print(f"{envs.num_envs} workers ready after {time.perf_counter() - begun:.2f} s, {each / 2**20:.1f} MiB each")
    worlds = sorted(set(envs.get_attr("world")))
    envs.close()
    if worlds != ["ice"]:
        raise SystemExit(f"the main program set the world to 'ice', and the workers have {worlds}")
