"""TorchRL's collectors, with a ParallelEnv in each, all of it on the CPU, on a machine with a GPU.

    PYTHONPATH=python build/peers/torchrl/bin/python examples/many_collectors/with_torchrl.py [--theirs] [--stand-in MIB]

Against TorchRL's own one line differs, the import; `--theirs` takes theirs. `benchmarks/peers/setup torchrl` makes an environment with
TorchRL.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from device import held_mib, stand_in
from tensordict.nn import TensorDictModule
from torchrl.envs import GymWrapper
from world import World

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import descendants, memory_of_tree, positive


def one() -> Any:
    return GymWrapper(World())


def several(parallel: Any, count: int) -> Any:
    return parallel(count, one)


class Lean(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot((observation[..., 0] > 0).long(), 2)


def main(options: argparse.Namespace) -> None:
    envs = importlib.import_module("torchrl.envs" if options.theirs else "shoal.compat.torchrl")
    collectors = importlib.import_module("torchrl.collectors" if options.theirs else "shoal.compat.torchrl")
    policy = TensorDictModule(Lean(), in_keys=["observation"], out_keys=["action"])
    begun = time.perf_counter()
    print(f"{options.collectors} collectors of {options.envs} environments", flush=True)
    collector = collectors.MultiAsyncCollector(
        [functools.partial(several, envs.ParallelEnv, options.envs)] * options.collectors,
        policy,
        frames_per_batch=options.frames // options.collectors,
        total_frames=options.frames,
        device="cpu",
    )
    try:
        frames, held, weight = 0, 0, 0
        pids: set[int] = set()
        for batch in collector:
            frames += batch.numel()
            pids = pids or set(descendants())
            held, weight = max(held, held_mib(sorted(pids))), weight or memory_of_tree()
        seconds = time.perf_counter() - begun
        print(f"{frames} frames in {seconds:.1f} s with the start, {weight / 2**20:.0f} MiB in {len(pids)} processes")
        print(f"{held} MiB of the GPU are held")
    finally:
        collector.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collectors", type=positive, default=8)
    parser.add_argument("--envs", type=positive, default=8, help="of each collector")
    parser.add_argument("--frames", type=positive, default=2048, help="of all collectors together")
    parser.add_argument("--theirs", action="store_true", help="TorchRL's own classes")
    parser.add_argument("--stand-in", metavar="MIB", type=positive)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if options.stand_in:
            stand_in(Path(folder), options.stand_in)
        main(options)
