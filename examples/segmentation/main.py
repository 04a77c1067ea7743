"""An environment that holds a segmentation model, in worker processes: a model each, or one for all of them.

    python examples/segmentation/main.py [--envs 4] [--steps 20] [--service] [--gpu] [--model unet]

original.py is what failed. Here the workers start from a zygote, which has imported what the model needs and computed nothing; with
`--service` the model is loaded once, and asked by all workers in batches. Models compute on the CPU, or with `--gpu` on the GPU: workers
see it then, or with `--service` the service alone.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from pathlib import Path

from segmented_world import SegmentedWorld, load_model

import shoal

sys.path.append(str(Path(__file__).resolve().parents[1]))
from measuring import gpu_mib, memory_of_tree, positive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=positive, default=4)
    parser.add_argument("--steps", type=positive, default=20)
    parser.add_argument("--service", action="store_true", help="one model for all environments")
    parser.add_argument("--gpu", action="store_true", help="models compute on the GPU")
    parser.add_argument("--model", default="unet", choices=["unet", "maskrcnn"], help="the second needs torchvision")
    options = parser.parse_args()

    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if options.service:
            load, device = functools.partial(load_model, options.model), "cuda" if options.gpu else "cpu"
            service = shoal.ModelService({"segment": load}, max_batch=64, threads=1, device=device)
            workers = shoal.WorkerOptions(models=stack.enter_context(service))
            kwargs = {"segmenter": "service"}
        else:
            kwargs = {"segmenter": "own", "model": options.model}
            SegmentedWorld(**kwargs).reset(seed=0)  # a model was asked in this process, as in original.py
            workers = shoal.WorkerOptions(preload=["segmenter"], gpu="own" if options.gpu else "none")
        envs = shoal.make_vec(
            SegmentedWorld,
            options.envs,
            num_workers=options.envs,
            env_kwargs=kwargs,
            worker=workers,
        )
        stack.callback(envs.close)
        envs.reset(seed=0)
        started = time.perf_counter() - begun
        print(f"first observations after {started:.1f} s", flush=True)
        begun = time.perf_counter()
        for _ in range(options.steps):
            envs.step(envs.action_space.sample())
        rate = options.steps * options.envs / (time.perf_counter() - begun)
        print(f"{rate:.0f} steps/s, {memory_of_tree() / 2**20:.0f} MiB all together")
        print(f"{gpu_mib()} MiB of the GPU are held")


if __name__ == "__main__":
    main()
