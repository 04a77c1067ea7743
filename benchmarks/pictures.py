"""Learning from pictures: the Nature CNN on Shoal's own kernels against torch, and environment steps per second of a training run.

    .venv/bin/python benchmarks/pictures.py layers            # ms and GFLOP/s of each layer and of minibatches, beside torch's
    .venv/bin/python benchmarks/pictures.py precision         # minibatches of 256 in float32 and in bfloat16, and their share of the peak
    .venv/bin/python benchmarks/pictures.py pong              # steps/s of PPO on Pong, 8 environments: float32, bfloat16, Stable-Baselines3
    .venv/bin/python benchmarks/pictures.py returns           # what PPO reaches in both, by seed: a ball to be caught, seen as pictures
    .venv/bin/python benchmarks/pictures.py train             # steps/s of PPO with the preset cleanrl_atari
    .venv/bin/python benchmarks/pictures.py train --against ../other   # and those of another source tree, alternating
    .venv/bin/python benchmarks/pictures.py train --precision bfloat16   # in both, alternating
    .venv/bin/python benchmarks/pictures.py train --overlap --step-ms 0.5 1 [--waiting]   # in turns and with overlap, alternating

bfloat16 is left out where the processor has neither AMX nor AMD's AVX512_BF16. `pong` needs Atari's packages, which `./shoal train ALE/Pong-v5` installs;
it compares with Stable-Baselines3 where `benchmarks/peers/setup sb3` was run. All have the settings of the preset zoo_atari.

`layers` and `precision` need the micro-benchmarks: cmake --preset release -DSHOAL_BUILD_BENCHMARKS=ON, then
ninja -C build/release learn_fused_actor_critic_benchmark. A step of `train`'s environment computes for --step-ms, or sleeps
as long with --waiting. All sides run one after the other in each round; told is the best round
of each. Times of one thread are CPU time, which other programs disturb least; those of several are what the clock says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from in_turns import compared, rates_of, show

ROOT = Path(__file__).parents[1]
SB3 = Path(os.environ.get("SHOAL_PEERS") or ROOT / "build/peers") / "sb3/bin/python"
CPU = Path("/proc/cpuinfo").read_text()
HAS_BFLOAT16 = "amx_bf16" in CPU or all(word in CPU for word in ("avx512_bf16", "AuthenticAMD"))
PROGRAM = ROOT / "build/release/src/shoal/learn/learn_fused_actor_critic_benchmark"
MACS = {"convolution_1": 3_276_800, "convolution_2": 2_654_208, "convolution_3": 1_806_336, "linear": 1_605_632}
FORWARD = 2 * (sum(MACS.values()) + 7 * 512)
TRAINING = 3 * FORWARD - 2 * MACS["convolution_1"]  # the first layer's input has no gradient

Times = dict[str, float]  # milliseconds


def ours(threads: int) -> dict[str, Times]:
    """By "shoal" and, where the processor has it, "shoal, bfloat16"."""
    flags = [
        "--benchmark_format=json",
        "--benchmark_min_time=0.05",
        "--benchmark_repetitions=5",
        f"--benchmark_filter=layer|linear|/{threads}/real_time",
    ]
    done = subprocess.run([PROGRAM, *flags], check=True, capture_output=True, text=True)
    sides: dict[str, Times] = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        if row["run_type"] != "iteration":
            continue
        times = sides.setdefault("shoal, bfloat16" if "/bfloat16" in row["run_name"] else "shoal", {})
        name, *numbers = row["run_name"].removesuffix("/real_time").replace("/bfloat16", "").split("/")
        if name.startswith("layer_"):
            key = f"{numbers[0]} {name.removeprefix('layer_').replace('_', ' ')}"
        elif name.startswith("linear_"):
            key = name.replace("_", " ") if numbers[0] == "256" else ""
        else:
            key = f"{name} {numbers[0]}"
        times[key] = min(row["cpu_time" if threads == 1 else "real_time"], times.get(key, float("inf")))
    for times in sides.values():
        times.pop("", None)
    return sides


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
    sides = ("shoal", *["shoal, bfloat16"] * HAS_BFLOAT16, "torch", "torch, channels last")
    for threads in args.threads:
        best: dict[str, Times] = {side: {} for side in sides}
        for _ in range(args.rounds):
            found = ours(threads)
            for side in sides[-2:]:
                command = [sys.executable, __file__, "torch", "--threads", str(threads)]
                command += ["--channels-last"] if side != "torch" else []
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[side] = json.loads(done.stdout)
            for side, times in found.items():
                best[side] = {name: min(times[name], best[side].get(name, float("inf"))) for name in times}
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


def timed_in_program(name: str) -> dict[str, Any]:
    """One micro-benchmark."""
    command = [PROGRAM, "--benchmark_format=json", "--benchmark_min_time=0.3", f"--benchmark_filter=^{name}$"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (row,) = json.loads(done.stdout)["benchmarks"]
    return row


def precision(args: argparse.Namespace) -> None:
    kinds = {"float32": ""} | ({"bfloat16": "/bfloat16"} if HAS_BFLOAT16 else {})
    for threads in args.threads:
        found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind, suffix in kinds.items():
                peak = timed_in_program(f"peak{suffix}")["GFLOP/s"]
                row = timed_in_program(f"minibatch{suffix}/256/{threads}/real_time")
                ms = row["cpu_time" if threads == 1 else "real_time"]
                rate = flop_of("minibatch 256") / ms / 1e6
                found[kind].append((ms, rate, rate / peak / threads))
        print(f"minibatch of 256, forward and backward, {threads} thread{'s' * (threads > 1)}: medians (least - most)")
        for kind, rows in found.items():
            ratios = [first[0] / own[0] for first, own in zip(found["float32"], rows, strict=True)]
            ms_of, rate_of, share_of = ([row[k] for row in rows] for k in range(3))
            print(
                f"  {kind:8} {statistics.median(ms_of):6.1f} ms ({min(ms_of):.1f} - {max(ms_of):.1f})"
                f"  {statistics.median(rate_of):4.0f} GFLOP/s, {statistics.median(share_of):.0%} of the peak"
                f"  x {statistics.median(ratios):.2f} ({min(ratios):.2f} - {max(ratios):.2f})"
            )


PONG = """
import json, sys, tempfile
import shoal

with tempfile.TemporaryDirectory() as folder:
    shoal.learn.train("ALE/Pong-v5", preset="zoo_atari", total_steps=int(sys.argv[1]), seed=1, eval_every=0,
                      final_episodes=0, log_interval=1, run_dir=folder + "/run", precision=sys.argv[2])
    with open(folder + "/run/progress.jsonl") as file:
        records = [json.loads(line) for line in file]
records = [(r["time/total_timesteps"], r["time/time_elapsed"]) for r in records if "time/time_elapsed" in r]
(first, start), (last, end) = records[0], records[-1]
print((last - first) / (end - start))
"""


def pong(args: argparse.Namespace) -> None:
    def rate(command: list[Any], more: dict[str, str]) -> float:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **more})
        return float(done.stdout.split()[-1])

    sides = {}
    if os.access(SB3, os.X_OK):
        sides["Stable-Baselines3"] = partial(rate, [SB3, ROOT / "benchmarks/peers/sb3_pong.py", str(args.steps)], {})
    for kind in ("float32", *["bfloat16"] * HAS_BFLOAT16):
        command = [sys.executable, "-c", PONG, str(args.steps), kind]
        sides[kind] = partial(rate, command, {"PYTHONPATH": str(ROOT / "python")})
    print(f"PPO on Pong, 8 environments, {args.steps} steps: times the first line's rate")
    show(compared(rates_of(sides, args.rounds), "times", first_is_above=False), "times")


CATCH = """
import json, sys, tempfile
import gymnasium as gym, numpy as np
import shoal

SIDE, BALLS = 12, 5

class Catch(gym.Env):
    '''Balls fall through a room of 12 x 12, drift and rebound; a paddle below goes left, stays or goes right. One that is
    caught earns 1. What is seen are the last two pictures.'''
    observation_space = gym.spaces.Box(0, 255, (36, 36, 2), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.balls, self.paddle = 0, int(self.np_random.integers(SIDE))
        self.drop()
        self.before = self.picture()
        return self.seen(), {}

    def drop(self):
        self.y, self.x, self.drift = 0, int(self.np_random.integers(SIDE)), int(self.np_random.integers(-1, 2))

    def step(self, action):
        self.paddle = min(max(self.paddle + int(action) - 1, 0), SIDE - 1)
        if not 0 <= self.x + self.drift < SIDE:
            self.drift = -self.drift
        self.x, self.y = self.x + self.drift, self.y + 1
        reward = 0.0
        if self.y == SIDE - 1:
            reward = float(self.x == self.paddle)
            self.balls += 1
            self.drop()
        return self.seen(), reward, self.balls == BALLS, False, {}

    def seen(self):
        before, self.before = self.before, self.picture()
        return np.stack([before, self.before], -1)

    def picture(self):
        room = np.zeros((SIDE, SIDE), np.uint8)
        room[SIDE - 1, self.paddle] = 120
        room[self.y, self.x] = 255
        return room.repeat(3, 0).repeat(3, 1)

options = {"num_envs": 8, "num_steps": 128, "batch_size": 256, "epochs": 4, "learning_rate": 1e-3, "entropy_coef": 0.01,
           "learning_rate_schedule": "linear", "policy_hidden": [], "value_hidden": []}
with tempfile.TemporaryDirectory() as folder:
    result = shoal.learn.train(Catch, preset="sb3", total_steps=int(sys.argv[1]), seed=int(sys.argv[2]), eval_every=0,
                               final_episodes=100, num_workers=0, precision=sys.argv[3], run_dir=folder + "/run", **options)
print(result.mean_return)
"""


def returns(args: argparse.Namespace) -> None:
    print(f"mean return of 100 episodes after {args.steps} steps of PPO, of 5 at most, for {args.seeds} seeds")
    kinds = ("float32", *["bfloat16"] * HAS_BFLOAT16)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    reached: dict[str, list[float]] = {kind: [] for kind in kinds}
    for seed in range(args.seeds):
        runs = {}
        for kind in kinds:  # at the same time: nothing is timed
            command = [sys.executable, "-c", CATCH, str(args.steps), str(seed), kind]
            runs[kind] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for kind, run in runs.items():
            reached[kind].append(float(run.communicate()[0].split()[-1]))
    for kind, found in reached.items():
        error = statistics.stdev(found) / len(found) ** 0.5
        print(f"  {kind:8} {statistics.mean(found):.2f} +- {error:.2f}: {' '.join(f'{r:.2f}' for r in sorted(found))}")


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
    if args.precision:
        sides["in " + args.precision] = (ROOT, {"precision": args.precision})
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
    parser.add_argument("what", choices=["layers", "precision", "pong", "returns", "train", "torch"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--against", type=Path, nargs="*", default=[])
    parser.add_argument("--precision", choices=["bfloat16"], help="train: also with this precision")
    parser.add_argument("--overlap", action="store_true", help="train: also with overlap")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0], help="train: of the environment's step")
    parser.add_argument("--waiting", action="store_true", help="train: the environment's step sleeps so long")
    args = parser.parse_args()
    if args.what == "torch":
        print(json.dumps(torchs(args.threads[0], args.channels_last)))
    else:
        {"layers": layers, "precision": precision, "pong": pong, "returns": returns, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
