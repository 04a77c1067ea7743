"""Stable-Baselines3 trains on environments that have a server each, in worker processes.

    python examples/server_per_worker/with_sb3.py [--envs 4] [--steps 512] [--start-method forkserver]

original.py is what failed. Here the import of SubprocVecEnv differs; the environment asks its worker for a port (world.py), and
`config=` brings the main program's settings to the workers.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import settings
from stable_baselines3 import PPO
from world import World

import shoal
from shoal.compat.sb3 import SubprocVecEnv  # was: from stable_baselines3.common.vec_env import SubprocVecEnv

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import memory, positive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=positive, default=4)
    parser.add_argument("--steps", type=positive, default=512, help="of all environments together")
    parser.add_argument("--start-method", default="forkserver", choices=["forkserver", "spawn", "fork"])
    options = parser.parse_args()

    begun = time.perf_counter()
    workers = shoal.WorkerOptions(config=[settings, settings.Physics])
    envs = SubprocVecEnv([World] * options.envs, start_method=options.start_method, worker=workers)
    envs.reset()
    started = time.perf_counter() - begun
    each = max(memory(process.pid) for process in envs.processes)
    print(f"{options.envs} workers ready after {started:.2f} s, {each / 2**20:.1f} MiB each")
    print(f"worlds: {sorted(set(envs.get_attr('world')))}, ports: {len(set(envs.get_attr('port')))} different ones")

    begun = time.perf_counter()
    model = PPO(
        "MlpPolicy", envs, n_steps=options.steps // options.envs, batch_size=64, n_epochs=2, seed=0, device="cpu"
    )
    model.learn(options.steps)
    seconds = time.perf_counter() - begun
    print(
        f"{model.num_timesteps} steps and updates: {seconds:.1f} s, {envs.get_attr('episodes')[0]} episodes of all workers"
    )
    envs.close()


if __name__ == "__main__":
    settings.WORLD = "ice"
    settings.GOAL = 2
    settings.Physics.friction = 0.2
    main()
