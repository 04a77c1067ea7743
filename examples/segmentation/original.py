"""What users had: an environment that holds a segmentation model, in the forked workers of a vector environment.

    python examples/segmentation/original.py [--envs 4] [--steps 20] [--context fork] [--model unet]

The program of opendilab/DI-engine#816 with Gymnasium's AsyncVectorEnv, which needs no DI-engine. The model was asked once in this
process, as managers do that make an environment to learn its spaces. On a GPU the forked workers fail: "Cannot re-initialize CUDA in
forked subprocess". On the CPU they wait for ever, for threads that a fork does not copy: press Ctrl-C. `--context spawn` works, and
says what it costs.

main.py is the program that works.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from pathlib import Path

import gymnasium
from segmented_world import SegmentedWorld

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import gpu_mib, memory_of_tree, positive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=positive, default=4)
    parser.add_argument("--steps", type=positive, default=20)
    parser.add_argument("--context", default="fork", choices=["fork", "forkserver", "spawn"])
    parser.add_argument("--model", default="unet", choices=["unet", "maskrcnn"], help="the second needs torchvision")
    options = parser.parse_args()

    begun = time.perf_counter()
    make = functools.partial(SegmentedWorld, model=options.model)
    make().reset(seed=0)
    print("the model was asked in this process", flush=True)
    envs = gymnasium.vector.AsyncVectorEnv([make] * options.envs, context=options.context)
    envs.reset(seed=0)
    started = time.perf_counter() - begun
    begun = time.perf_counter()
    for _ in range(options.steps):
        envs.step(envs.action_space.sample())
    rate = options.steps * options.envs / (time.perf_counter() - begun)
    print(
        f"first observations after {started:.1f} s, {rate:.0f} steps/s, {memory_of_tree() / 2**20:.0f} MiB all together"
    )
    print(f"{gpu_mib()} MiB of the GPU are held")
    envs.close()


if __name__ == "__main__":
    main()
