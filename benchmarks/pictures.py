"""Learning from pictures: the Nature CNN on Shoal's own kernels against torch, and environment steps per second of a training run.

    .venv/bin/python benchmarks/pictures.py layers            # ms and GFLOP/s of each layer and of minibatches, beside torch's
    .venv/bin/python benchmarks/pictures.py train             # steps/s of PPO with the preset cleanrl_atari
    .venv/bin/python benchmarks/pictures.py train --against ../other   # and those of another source tree, alternating
    .venv/bin/python benchmarks/pictures.py train --overlap --step-ms 0.5 1 [--waiting]   # in turns and with overlap, alternating

`layers` needs the micro-benchmarks: cmake --preset release -DSHOAL_BUILD_BENCHMARKS=ON, then
ninja -C build/release learn_fused_actor_critic_benchmark. A step of `train`'s environment computes for --step-ms, or sleeps
as long with --waiting. All sides run one after the other in each round; told is the best round
of each. Times of one thread are CPU time, which other programs disturb least; those of several are what the clock says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from in_turns import compared, rates_of, show

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "build/release/src/shoal/learn/learn_fused_actor_critic_benchmark"
MACS = {"convolution_1": 3_276_800, "convolution_2": 2_654_208, "convolution_3": 1_806_336, "linear": 1_605_632}
FORWARD = 2 * (sum(MACS.values()) + 7 * 512)
TRAINING = 3 * FORWARD - 2 * MACS["convolution_1"]  # the first layer's input has no gradient

Times = dict[str, float]  # milliseconds


def ours(threads: int) -> Times:
    flags = [
        "--benchmark_format=json",
        "--benchmark_min_time=0.05",
        "--benchmark_repetitions=5",
        f"--benchmark_filter=layer|linear|/{threads}/real_time",
    ]
    done = subprocess.run([PROGRAM, *flags], check=True, capture_output=True, text=True)
    times: Times = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row["run_type"] != "iteration":
            continue
        name, *numbers = row["run_name"].removesuffix("/real_time").split("/")
        if name.startswith("layer_"):
            key = f"{numbers[0]} {name.removeprefix('layer_').replace('_', ' ')}"
        elif name.startswith("linear_"):
            key = name.replace("_", " ") if numbers[0] == "256" else ""
        else:
            key = f"{name} {numbers[0]}"
        times[key] = min(row["cpu_time" if threads == 1 else "real_time"], times.get(key, float("inf")))
    times.pop("", None)
    return times


def torchs(threads: int, channels_last: bool) -> Times:
    """Run in a process of its own."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    memory = torch.channels_last if channels_last else torch.contiguous_format

    def best(call: Any, times: int = 5) -> float:
        call()
        least = float("inf")
        for _ in range(times):
            start = clock()
            call()
            least = min(least, clock() - start)
        return 1e3 * least

    layers = {
        "convolution_1": (4, 32, 8, 4, 84),
        "convolution_2": (32, 64, 4, 2, 20),
        "convolution_3": (64, 64, 3, 1, 9),
    }
    times: Times = {}
    for name, (into, out, kernel, stride, side) in layers.items():
        x = torch.randn(256, into, side, side).to(memory_format=memory)
        conv = nn.Conv2d(into, out, kernel, stride).to(memory_format=memory)
        with torch.no_grad():
            y = conv(x)
            times[f"{name} forward"] = best(lambda x=x, conv=conv: conv(x))

        def gradient(mask: list[bool], x: Any = x, conv: Any = conv, y: Any = y) -> None:
            torch.ops.aten.convolution_backward(
                y, x, conv.weight, None, conv.stride, [0, 0], [1, 1], False, [0, 0], 1, mask
            )

        times[f"{name} weight gradient"] = best(lambda gradient=gradient: gradient([False, True, False]))
        if name != "convolution_1":
            times[f"{name} input gradient"] = best(lambda gradient=gradient: gradient([True, False, False]))
    linear = nn.Linear(3136, 512)
    x, delta = torch.randn(256, 3136), torch.randn(256, 512)
    with torch.no_grad():
        times["linear forward"] = best(lambda: linear(x))
        times["linear backward"] = best(lambda: (delta.T @ x, delta @ linear.weight, delta.sum(0)))
    net = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 7)),
    ).to(memory_format=memory)
    for rows in (8, 256):
        pictures = torch.randint(0, 256, (rows, 4, 84, 84), dtype=torch.uint8)

        def forward(pictures: Any = pictures) -> Any:
            return net(pictures.float().mul(1 / 255).contiguous(memory_format=memory))

        def train(forward: Any = forward) -> None:
            net.zero_grad()
            forward().sum().backward()

        times[f"minibatch {rows}"] = best(train)
        with torch.inference_mode():
            times[f"acting {rows}"] = best(forward)
    return times


def flop_of(name: str) -> float:
    what, _, rest = name.partition(" ")
    if what in ("minibatch", "acting"):
        return float(rest) * (TRAINING if what == "minibatch" else FORWARD)
    return 256 * 2 * MACS[what] * (2 if rest == "backward" else 1)


def layers(args: argparse.Namespace) -> None:
    sides = ("shoal", "torch", "torch, channels last")
    for threads in args.threads:
        best: dict[str, Times] = {side: {} for side in sides}
        for _ in range(args.rounds):
            for side in sides:
                if side == "shoal":
                    found = ours(threads)
                else:
                    command = [sys.executable, __file__, "torch", "--threads", str(threads)]
                    command += ["--channels-last"] if side != "torch" else []
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    found = json.loads(done.stdout)
                best[side] = {name: min(found[name], best[side].get(name, float("inf"))) for name in found}
        print(f"\n{threads} thread{'s' * (threads > 1)}, ms (GFLOP/s)")
        print(f"| {'':30} | {' | '.join(f'{side:>20}' for side in sides)} |")
        for name in best["shoal"]:
            if threads > 1 and " " in name and name.split()[0] not in ("minibatch", "acting"):
                continue  # one thread computes a layer
            cells = [
                f"{ms:.1f} ({flop_of(name) / ms / 1e6:.0f})" if (ms := best[side].get(name)) is not None else ""
                for side in sides
            ]
            print(f"| {name:30} | {' | '.join(f'{cell:>20}' for cell in cells)} |")


PICTURES = """
import json, sys, tempfile, time
import gymnasium as gym, numpy as np
import shoal

STEP, WAITING = float(sys.argv[2]) / 1000, sys.argv[3] == "waiting"

class Pictures(gym.Env):
    '''84 x 84 x 4 bytes, rewarded for the action that the picture's first byte names; 200 steps.'''
    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gym.spaces.Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pool = self.np_random.integers(0, 256, (16, 84, 84, 4), np.uint8)
        self.t = 0
        return self.pool[0], {}

    def step(self, action):
        if STEP and WAITING:
            time.sleep(STEP)
        elif STEP:
            begin = time.thread_time()
            while time.thread_time() - begin < STEP:
                pass
        reward = float(self.pool[self.t % 16, 0, 0, 0] % 6 == action)
        self.t += 1
        return self.pool[self.t % 16], reward, False, self.t == 200, {}

with tempfile.TemporaryDirectory() as folder:
    shoal.learn.train(Pictures, preset="cleanrl_atari", total_steps=int(sys.argv[1]), seed=1, eval_every=0,
                      final_episodes=0, log_interval=1, num_workers=2, run_dir=folder + "/run", **json.loads(sys.argv[4]))
    with open(folder + "/run/progress.jsonl") as file:
        records = [json.loads(line) for line in file]
records = [(r["time/total_timesteps"], r["time/time_elapsed"]) for r in records if "time/time_elapsed" in r]
(first, start), (last, end) = records[0], records[-1]
print((last - first) / (end - start))
"""


def train(args: argparse.Namespace) -> None:
    sides = {"in turns": (ROOT, {})} if args.overlap else {str(ROOT): (ROOT, {})}
    if args.overlap:
        sides["with overlap"] = (ROOT, {"overlap": True})
    sides |= {str(tree): (tree.resolve(), {}) for tree in args.against}
    for step_ms in args.step_ms:
        runs = {name: partial(trained, tree, more, step_ms, args) for name, (tree, more) in sides.items()}
        rates = rates_of(runs, args.rounds)
        print(f"steps that {'sleep' if args.waiting else 'compute'} for {step_ms:g} ms: times the first line's rate")
        show(compared(rates, "times", first_is_above=False), "times")


def trained(tree: Path, more: dict[str, Any], step_ms: float, args: argparse.Namespace) -> float:
    how = "waiting" if args.waiting else "computing"
    command = [tree / ".venv/bin/python", "-c", PICTURES, str(args.steps), str(step_ms), how, json.dumps(more)]
    environment = {**os.environ, "PYTHONPATH": str(tree / "python")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tree, env=environment)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["layers", "train", "torch"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--against", type=Path, nargs="*", default=[])
    parser.add_argument("--overlap", action="store_true", help="train: also with overlap")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0], help="train: of the environment's step")
    parser.add_argument("--waiting", action="store_true", help="train: the environment's step sleeps so long")
    args = parser.parse_args()
    if args.what == "torch":
        print(json.dumps(torchs(args.threads[0], args.channels_last)))
    else:
        {"layers": layers, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
